"""The command line: each command parses, calls the library and prints."""

from bigcons.cli.main import main

__all__ = ["main"]
