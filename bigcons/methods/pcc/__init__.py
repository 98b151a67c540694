"""Probabilistic consensus clustering (Lourenço et al. 2015)."""
