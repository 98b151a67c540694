"""The command line: each command parses, calls the library and prints."""

from bigcons.cli.group import main

__all__ = ["main"]
