"""Engines, serial, on threads and on Dask workers, and the fold over row blocks."""
