"""Programs that measure bigcons; each says with --help what it runs."""
