"""Valid names for a `data_source`: metrics have a row for each, beside rows of their own."""

from vtune.errors import DataError

ALL = "all"
"""Name of the row over all sources."""
EVAL = "eval/"
"""Prefix of rows produced by an evaluation during training."""


def is_taken(source: str) -> bool:
    """Whether metrics use this name for a row of theirs."""
    return source == ALL or source.startswith(EVAL)


def check_source(source: str) -> None:
    """Check that a `data_source` is not a name that metrics use for a row of theirs.

    Raises:
        DataError: If it is `all`, or begins with `eval/`.
    """
    if is_taken(source):
        row = "row over all sources" if source == ALL else "rows of evaluations"
        raise DataError(
            f"data_source {source!r} is taken: metrics use it for their {row}",
            fix=f"give it another name, e.g. {named_by(source)!r}",
        )


def named_by(file: str) -> str:
    """The `data_source` of rows without one: the name of their file or folder, if it is not taken."""
    return f"file/{file}" if is_taken(file) else file
