"""CodeV's data for reinforcement learning: DeepEyes' layout with `env_name` "code"."""

from collections.abc import Iterator
from pathlib import Path

from vtune.data.formats import specimens
from vtune.data.formats.building import Found, Options, each
from vtune.data.formats.reward_rows import is_judged
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format
from vtune.data.formats.verl import verl_sample
from vtune.schema.fields import Row, wrong
from vtune.schema.sample import Sample
from vtune.tools.python import NAME as PYTHON

ABILITIES = {"vstar": "visual_search", "high_res": "visual_search", "chart": "chart"}
"""Task families of the sources for which CodeV's code judges tool calls by their pictures."""
TOOL_RATIO = 0.5
"""CodeV's code: 1.0 accuracy + 0.3 format + 0.5 process; the paper has no format part."""


def read_codev(path: Path, options: Options) -> Iterator[Found]:
    """Samples of CodeV's files, one entry per row."""
    return each(read_rows(path), lambda row, place: codev_sample(row, place, options))


def codev_sample(row: Row, place: Place, options: Options) -> Sample:
    """The sample of a row; as in CodeV's code, a model judges answers that are neither a letter nor an
    expression.

    Raises:
        DataError: Names the column and the fix.
    """
    environment = row.get("env_name") or ""
    if environment not in ("", "code"):
        raise wrong(
            "env_name",
            f"unknown environment {environment!r}",
            "rows of DeepEyes are read by the format `deepeyes`",
        )
    return verl_sample(
        row,
        place,
        options,
        tools=(PYTHON,),
        ability=ABILITIES.get(str(row.get("data_source"))),
        model=True,
        ratios=(1.0, 0.0, TOOL_RATIO),
    )


FORMATS.add(
    "codev",
    Format(
        read_codev,
        "Parquet of CodeV's RL data",
        looks=lambda glance: is_judged(glance) and glance.row.get("env_name") == "code",
        specimen=specimens.codev,
    ),
)
