"""``python -m bigcons``: the command line."""

from bigcons.cli import main

main(prog_name="bigcons")
