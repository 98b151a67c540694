"""The version of bigcons, in a module of its own that the lowest layers may import."""

__version__ = "0.1.0"
