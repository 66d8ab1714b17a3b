"""The command line. Nothing below this package prints or exits.

`main` turns every failure into a message and an exit code (see `edgekit --help`). With `--json`
the message is also one JSON object on stdout: `{"type": "error", "error", "cause", "hint",
"exit_code"}`, so that a program reading stdout need not guess from its end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from edgekit.errors import EdgekitError, UsageError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: arguments after the program's name; the process's own when left out.

    Returns:
        the exit code.
    """
    try:
        return _run(argv)
    except BrokenPipeError:
        # Nobody reads stdout any more. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(argv: Sequence[str] | None) -> int:
    import typer

    from edgekit.cli.app import create_app
    from edgekit.cli.output import internal_fault, out

    args = list(sys.argv[1:] if argv is None else argv)
    out.json = out.quiet = False
    try:
        status = create_app(args)(args, prog_name="edgekit", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except EdgekitError as error:
        out.error(error)
        return error.exit_code
    except typer.TyperException as error:
        out.json = out.json or "--json" in args
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "edgekit"
        usage = UsageError(_sentence(error.format_message()), hint=f"{command} --help")
        out.error(usage)
        return usage.exit_code
    except typer.Abort:
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        fault = internal_fault(error)
        out.error(fault)
        return fault.exit_code


def _sentence(text: str) -> str:
    """Typer's message in the form of ours: lower case, no full stop."""
    text = text.strip().rstrip(".")
    return text[:1].lower() + text[1:]
