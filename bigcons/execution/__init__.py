"""Engines, the fold over row blocks, and the loop of passes."""
