"""The one way in for what users hold: arrays, data frames, dask arrays and files."""
