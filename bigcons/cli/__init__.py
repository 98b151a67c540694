"""The command line: one command per file; each parses, calls the library and prints."""

from bigcons.cli.group import main

__all__ = ["main"]
