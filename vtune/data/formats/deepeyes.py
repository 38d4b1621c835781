"""DeepEyes-Datasets-47k: verl's layout with `env_name`; three files, one with an extra column.

`data_0.1.2_visual_toolbox_v2` (source vstar) and `data_v0.8_visual_toolbox_v2` (source chart, column
`rationale`) use the zoom tool and are judged by a model; `data_thinklite_reasoning_acc` has no tool and is
judged by rules.
"""

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
from vtune.tools.zoom import NAME as ZOOM

ABILITIES = {"vstar": "visual_search", "chart": "chart"}
"""Source -> task family, where the column is less specific."""


def read_deepeyes(path: Path, options: Options) -> Iterator[Found]:
    """Samples of the three files, one entry per row."""
    return each(read_rows(path), lambda row, place: deepeyes_sample(row, place, options))


def deepeyes_sample(row: Row, place: Place, options: Options) -> Sample:
    """The sample of a row; `env_name` says which tools it offers.

    Raises:
        DataError: Names the column and the fix.
    """
    environment = row.get("env_name") or ""
    if environment and not str(environment).startswith("visual_toolbox"):
        raise wrong(
            "env_name", f"unknown environment {environment!r}", "rows of CodeV are read by the format `codev`"
        )
    source = row.get("data_source")
    return verl_sample(
        row,
        place,
        options,
        tools=(ZOOM,) if environment else (),
        ability=ABILITIES.get(str(source)),
        model=True if environment else None,
    )


FORMATS.add(
    "deepeyes",
    Format(
        read_deepeyes,
        "Parquet of DeepEyes-Datasets-47k, all three files",
        looks=lambda glance: (
            is_judged(glance) and str(glance.row.get("env_name")).startswith("visual_toolbox")
        ),
        specimen=specimens.deepeyes,
    ),
)
