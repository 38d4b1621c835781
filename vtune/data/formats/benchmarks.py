"""Benchmarks in their published layouts, read by the readers that evaluation uses."""

from collections.abc import Callable, Iterator
from pathlib import Path

from vtune.data.charts import scan_charxiv_descriptive, scan_charxiv_reasoning
from vtune.data.formats import specimens, specimens_maths, specimens_tsv
from vtune.data.formats.building import Found, Options
from vtune.data.formats.conversations import is_conversation
from vtune.data.formats.questions import is_question
from vtune.data.formats.source import Place
from vtune.data.formats.table import FORMATS, Format, Glance, Look, looks_like_none
from vtune.data.formats.values import seen_to_open
from vtune.data.harness import (
    TARGETS,
    scan_blind,
    scan_countbench,
    scan_mmmu,
    scan_mmmu_pro,
    scan_mmmu_pro_vision,
    scan_realworld,
    scan_treebench,
)
from vtune.data.hrbench import scan_hrbench
from vtune.data.mathematics import (
    scan_mathverse,
    scan_mathvision,
    scan_mathvision_mini,
    scan_mathvista,
)
from vtune.data.options import listing
from vtune.data.vstar import CATEGORIES, scan_vstar
from vtune.errors import DataError
from vtune.schema.fields import wrong
from vtune.schema.message import IMAGE
from vtune.schema.sample import Sample
from vtune.verifiers.choice import chosen_letter, lettered


def read_vstar_rows(path: Path, options: Options) -> Iterator[Found]:
    """V*: its folder, one entry per annotation file (place without a row), or its TSV, one entry per row."""
    for number, (file, entry) in enumerate(scan_vstar(path)):
        yield Place(file, number if path.is_file() else None, path.stem), _opened(entry)


def _scan_vstar(path: Path) -> Iterator[Sample | DataError]:
    return (entry for _, entry in scan_vstar(path))


def read_hrbench_rows(path: Path, options: Options) -> Iterator[Found]:
    """HR-Bench: one entry per row; only one row is in memory at a time."""
    for number, entry in enumerate(scan_hrbench(path)):
        yield Place(path, number, path.stem), _opened(entry)


def _opened(entry: Sample | DataError) -> Sample | DataError:
    """The entry, if it asks something and its pictures can be opened."""
    if isinstance(entry, Sample):
        try:
            _check_question(entry)
            for picture in entry.images:
                seen_to_open("image", picture)
        except DataError as error:
            return error
    return entry


def _check_question(sample: Sample) -> None:
    """Check that there is a question and that no other option equals the right one; wrong ones may be equal.

    Raises:
        DataError: If not.
    """
    asked = sample.prompt[-1].content.removesuffix(listing(sample.choices)).replace(IMAGE, "")
    if not asked.strip():
        raise wrong("question", "the question is empty", "drop it, or download it again")
    options = [choice.strip() for choice in sample.choices]
    letter = chosen_letter(sample.ground_truth, sample.choices) or ""
    right = lettered(options).get(letter)  # None if the truth names several
    alike = len(set(options)) < len(options) and (right is None or options.count(right) > 1)
    if "" in options or alike:
        raise wrong(
            "options",
            "an option is empty, or the right one is listed twice",
            "drop the question, or fix its options",
        )


def _tsv(*columns: str) -> Look:
    """A VLMEvalKit TSV with columns that no other has."""
    return lambda glance: {"index", "image", *columns} <= glance.header


def _rows(*columns: str) -> Look:
    """Rows as they are on the hub, not rows that were turned into traces."""
    return lambda glance: (
        set(columns) <= glance.row.keys() and glance.judge is None and not is_conversation(glance)
    )


_is_vision = _rows("options", "answer", "level", "subject", "decoded_image")
"""MathVision's rows."""


def _looks_like_vstar(glance: Glance) -> bool:
    """Its folders, or exactly its own columns: others have a split, a subject or more levels."""
    needed = {"index", "image", "question", "A", "answer", "category"}
    if glance.header:
        return needed <= glance.header <= needed | set("BCD")
    return all((glance.path / category).is_dir() for category in CATEGORIES)


FORMATS.add(
    "vstar",
    Format(
        read_vstar_rows,
        "folder of V*, with its boxes, or its TSV",
        takes=("tools",),
        looks=_looks_like_vstar,
        specimen=specimens.vstar,
        scan=_scan_vstar,
    ),
)
FORMATS.add(
    "hrbench",
    Format(
        read_hrbench_rows,
        "TSV of HR-Bench, 4K or 8K",
        takes=("tools",),
        looks=_tsv("cycle_category"),
        specimen=specimens_tsv.hrbench,
        scan=scan_hrbench,
    ),
)


def _add(
    name: str,
    reads: str,
    scan: Callable[[Path], Iterator[Sample | DataError]],
    specimen: Callable[[Path], specimens.Specimen],
    looks: Look = looks_like_none,
    shares: tuple[Look, ...] = (),
) -> None:
    """A benchmark whose reader takes only a path."""

    def read(path: Path, options: Options) -> Iterator[Found]:
        for number, entry in enumerate(scan(path)):
            yield Place(path, number, path.stem), _opened(entry)

    layout = Format(
        read,
        reads,
        takes=("tools",),
        shares=lambda options: shares,
        looks=looks,
        specimen=specimen,
        scan=scan,
    )
    FORMATS.add(name, layout)


_add(
    "mme_realworld",
    "TSV of MME-RealWorld, whole or Lite",
    scan_realworld,
    specimens_tsv.realworld,
    _tsv("multi-choice options"),
)
_add("treebench", "TSV of TreeBench, with its boxes", scan_treebench, specimens_tsv.treebench, _tsv(TARGETS))
_add(
    "mmmu",
    "MMMU_DEV_VAL.tsv, or the folder of MMMU",
    scan_mmmu,
    specimens_tsv.mmmu,
    shares=(is_question,),  # the folder's columns, as far as other rows have them
)
_add(
    "mmmu_pro",
    "MMMU_Pro_10c.tsv, or the folder of MMMU-Pro",
    scan_mmmu_pro,
    specimens_tsv.mmmu_pro,
    shares=(is_question,),
)
_add(
    "mmmu_pro_vision",
    "MMMU_Pro_V.tsv, or the folder of MMMU-Pro",
    scan_mmmu_pro_vision,
    specimens_tsv.mmmu_pro_vision,
    shares=(is_question,),
)
_add("countbench", "CountBenchQA.tsv", scan_countbench, specimens_tsv.countbench)
_add("vlmblind", "VLMBlind.tsv", scan_blind, specimens_tsv.blind, _tsv("task", "answers"))
_add(
    "mathvista",
    "folder or file of MathVista, testmini",
    scan_mathvista,
    specimens_maths.mathvista,
    _rows("pid", "query", "answer_type", "precision"),
)
_add(
    "mathverse",
    "folder or file of MathVerse, testmini",
    scan_mathverse,
    specimens_maths.mathverse,
    _rows("problem_version", "query_wo", "question_for_eval"),
)
_add(
    "mathvision",
    "folder or file of MathVision, test",
    scan_mathvision,
    specimens_maths.mathvision,
    _is_vision,
)
_add(
    "mathvision_mini",
    "folder or file of MathVision, testmini",
    scan_mathvision_mini,
    specimens_maths.mathvision_mini,
    shares=(_is_vision,),  # another split of the same files
)
_add(
    "charxiv_reasoning",
    "CharXiv_reasoning_val.tsv",
    scan_charxiv_reasoning,
    specimens_maths.charxiv_reasoning,
    _tsv("grading_query", "inst_category"),
)
_add(
    "charxiv_descriptive",
    "CharXiv_descriptive_val.tsv",
    scan_charxiv_descriptive,
    specimens_maths.charxiv_descriptive,
    _tsv("grading_query", "qid"),
)
