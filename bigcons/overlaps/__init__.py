"""What methods do with the overlaps of base clusters: embed, partition and group them, and vote."""
