"""Disks and buckets: places, locks, atomic commits, checked arrays, checkpoints."""
