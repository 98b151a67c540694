"""What lies on disk, and how it stays whole: zarr and pyarrow only."""
