"""Where bytes lie and how they become whole: disks and buckets, commits, locks, checksums."""
