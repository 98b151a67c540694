"""Bayesian cluster ensembles (Wang, Shan, Banerjee 2009)."""
