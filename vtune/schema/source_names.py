"""Valid names for a `data_source`: metrics have a row for each, beside rows of their own."""

from vtune.errors import DataError

ALL = "all"
"""Name of the row over all sources."""
EVAL = "eval/"
"""What the names of rows begin with that an evaluation during training has made."""


def is_taken(source: str) -> bool:
    """Whether metrics call a row of their own so."""
    return source == ALL or source.startswith(EVAL)


def check_source(source: str) -> None:
    """Check that metrics call no row of their own as a `data_source` is called.

    Raises:
        DataError: If it is `all`, or begins with `eval/`.
    """
    if is_taken(source):
        row = "row over all sources" if source == ALL else "rows of evaluations"
        raise DataError(
            f"data_source {source!r} is taken: metrics call their {row} so",
            fix=f"give it another name, e.g. {named_by(source)!r}",
        )


def named_by(file: str) -> str:
    """The `data_source` of rows that say none: the name of their file or folder, if it is not taken."""
    return f"file/{file}" if is_taken(file) else file
