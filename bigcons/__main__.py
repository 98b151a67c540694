"""The ``bigcons`` command, also as ``python -m bigcons``."""

import signal


def main() -> None:
    """Run the command line; an interrupt before it is imported ends the process without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # a process in the background ignores interrupts
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bigcons.cli import main as command

    signal.signal(signal.SIGINT, handler)
    command(prog_name="bigcons")


if __name__ == "__main__":
    main()
