"""Engines (serial, threads, Dask workers) and the fold over row blocks."""
