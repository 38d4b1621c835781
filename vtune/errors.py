"""The errors that vtune raises, and who has to act on each.

A mistake of the model is a score, never an exception. Exceptions are for what a person must
fix: a recipe, a row of data, a missing package, a service that is down.
"""

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

RESTORE = "restore the file as the run wrote it"
"""The next step for a damaged file of a run."""
INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM."""
WITHIN = "VTUNE_WITHIN"
"""Environment variable set for commands started by another vtune command, which then says how to continue."""


class VtuneError(Exception):
    """A problem that someone can fix: what happened, where, and the next step.

    The command line prints it as text, without a traceback. It survives pickling, so that it can cross
    process boundaries.
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            # A file name may contain line breaks, but this must stay one line.
            where = self.where.replace("\n", "\\n")
            lines.append(f"  at   {where}")
        if self.fix:
            lines.append(f"  fix  {self.fix}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        beneath = "".join(traceback.format_exception(self.__cause__)) if self.__cause__ else ""
        return _rebuild, (type(self), self.what, self.where, self.fix, beneath)


@contextmanager
def first_failure() -> Iterator[None]:
    """Within it, a task group raises its first error itself, with the cause that it was raised with."""
    try:
        yield
    except ExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__


class Elsewhere(Exception):
    """The traceback, as text, of the cause that an error from another process had there."""

    def __str__(self) -> str:
        return f"in another process:\n{self.args[0]}"


def _rebuild(kind: type[VtuneError], what: str, where: str, fix: str, beneath: str) -> VtuneError:
    error = kind(what, where=where, fix=fix)
    error.__cause__ = Elsewhere(beneath) if beneath else None
    return error


def nearest(name: str, known: Iterable[str]) -> str:
    """The next step for an unknown name: the name that was meant, or a list of all names."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(names) or 'none'}"


class RecipeError(VtuneError):
    """A recipe, or a command line, that cannot be run as written."""


class DataError(VtuneError):
    """A file or a row that breaks the schema, or a ground truth that cannot be read."""


class ServiceError(VtuneError):
    """An engine, judge, sandbox or server that gave no usable answer."""


class SandboxUnavailable(ServiceError):
    """This machine offers no protection that is good enough to run model-written code."""


class MissingExtra(VtuneError):
    """An optional package that this command needs but that is not installed."""


class RunFailed(VtuneError):
    """A run that started well and cannot continue (exit status 1, not 2)."""


class OutOfRange(ValueError):
    """A score from a part that is outside its range.

    Args:
        what: The score, and its valid range.
        fix: The remedy.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what, fix)
        self.what, self.fix = what, fix

    def __str__(self) -> str:
        return self.what


class BrokenPart(RunFailed):
    """A user's own part raised an exception that it must not; its `__cause__` has the traceback."""
