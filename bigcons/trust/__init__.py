"""What to trust in a consensus: its tree with the support of every split, and a null reference."""
