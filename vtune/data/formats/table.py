"""The published layouts of data sets, by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from vtune.data.formats.benchmarks import read_hrbench_rows, read_vstar_rows
from vtune.data.formats.building import Found, Options
from vtune.data.formats.coco import read_coco, read_objects365, read_v3det
from vtune.data.formats.codev import read_codev
from vtune.data.formats.deepeyes import read_deepeyes
from vtune.data.formats.hub import read_hub
from vtune.data.formats.questions import read_easyr1, read_thinklite
from vtune.data.formats.samples import read_own
from vtune.data.formats.search import read_mars, read_mmsearch
from vtune.data.formats.thyme import read_thyme
from vtune.data.formats.verl import read_verl
from vtune.data.formats.vtriune import read_vtriune
from vtune.errors import RecipeError, nearest


@dataclass(frozen=True, slots=True)
class Format:
    """A published layout."""

    read: Callable[[Path, Options], Iterator[Found]]
    """Path, what the caller says -> one entry a row."""
    reads: str
    """What the path is, in a few words."""
    makes: Literal["samples", "traces"] = "samples"
    takes: tuple[str, ...] = ("images", "verifier", "tools")
    """Options that have an effect."""
    own_questions: bool = False
    """Its questions are written here, bare: an import adds how they are to be answered."""


PHOTOGRAPHS = "its photographs by --images"

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "samples": Format(
            read_own, "JSON lines of our own layout, as `vtune data export samples` writes them"
        ),
        "vtriune": Format(read_vtriune, "Parquet of V-Triune (Orsta-Data-47k)"),
        "verl": Format(read_verl, "Parquet or JSON lines of verl"),
        "deepeyes": Format(read_deepeyes, "Parquet of DeepEyes-Datasets-47k, all three files"),
        "codev": Format(read_codev, "Parquet of CodeV's RL data"),
        "thinklite": Format(read_thinklite, "Parquet of ThinkLite-VL"),
        "thyme": Format(read_thyme, "Parquet or JSON lines of Thyme-SFT", "traces", ("images",)),
        "easyr1": Format(read_easyr1, "Parquet or JSON of EasyR1; VisualProbe's JSON"),
        "mars": Format(read_mars, "JSON lines or meta file of SenseNova-MARS"),
        "mmsearch": Format(read_mmsearch, "Parquet of MMSearch-R1 (FVQA)"),
        "coco": Format(
            read_coco,
            f"instances_*.json of COCO; {PHOTOGRAPHS}",
            takes=("images", "tools"),
            own_questions=True,
        ),
        "v3det": Format(
            read_v3det,
            f"v3det_2023_v1_*.json of V3Det; {PHOTOGRAPHS}",
            takes=("images", "tools"),
            own_questions=True,
        ),
        "objects365": Format(
            read_objects365,
            f"zhiyuan_objv2_*.json of Objects365; {PHOTOGRAPHS}",
            takes=("images", "tools"),
            own_questions=True,
        ),
        "vstar": Format(read_vstar_rows, "folder of V*, with its boxes, or its TSV", takes=("tools",)),
        "hrbench": Format(read_hrbench_rows, "TSV of HR-Bench, 4K or 8K", takes=("tools",)),
        "hf": Format(
            read_hub,
            "any data set of `datasets`, with --columns",
            takes=("images", "verifier", "tools", "columns"),
        ),
    }
)
"""Name -> layout."""
ALIASES = MappingProxyType(
    {"orsta": "vtriune", "sensenova-mars": "mars", "fvqa": "mmsearch", "object365": "objects365"}
)


def format_of(name: str) -> Format:
    """The layout of a name.

    Raises:
        RecipeError: If there is none.
    """
    found = FORMATS.get(ALIASES.get(name, name))
    if found is None:
        raise RecipeError(f"unknown format {name!r}", fix=nearest(name, [*FORMATS, *ALIASES]))
    return found
