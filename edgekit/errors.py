"""Every error a person can meet, with the command that mends it.

    EdgekitError                1  what the user can fix: a bad bundle, a prompt that is too long
    ├── CheckpointError         1  the checkpoint cannot be read as it is
    ├── BundleError             1  the bundle is missing, damaged or made for something else
    ├── DoesNotFitError         1  the memory plan has no room for what was asked
    ├── UsageError              2  flags, values and names
    ├── MissingDependencyError  3  hardware, driver or an extra that is not installed
    └── BuildError              4  a graph, an engine or an executor failed

Exit code 5 is an internal fault and 130 is Ctrl-C; both belong to the command line.
"""

from __future__ import annotations


class EdgekitError(Exception):
    """An error with its cause and its remedy.

    Args:
        message: what is wrong, in one line.
        cause: why, when the message alone does not say it.
        hint: the command or change that fixes it.
    """

    exit_code = 1

    def __init__(self, message: str, *, cause: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.hint = hint

    def as_dict(self) -> dict[str, object]:
        """The error as `--json` prints it."""
        return {
            "error": self.message,
            "cause": self.cause,
            "hint": self.hint,
            "exit_code": self.exit_code,
        }


class CheckpointError(EdgekitError):
    """A checkpoint that cannot be read as it is."""


class BundleError(EdgekitError):
    """A bundle that is missing, damaged, or made for another machine or version."""


class DoesNotFitError(EdgekitError):
    """A request that the memory plan or the context has no room for."""


class UsageError(EdgekitError):
    """Flags, values and names that make no sense."""

    exit_code = 2


class MissingDependencyError(EdgekitError):
    """Hardware, a driver or an optional package that this machine lacks."""

    exit_code = 3


class BuildError(EdgekitError):
    """A graph, an engine or an executor that failed."""

    exit_code = 4
