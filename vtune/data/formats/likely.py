"""Which published layout a file looks like, so that none is read as another."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtune.data.formats.building import Options
from vtune.data.formats.samples import ADDED
from vtune.data.formats.source import files, read_rows
from vtune.data.formats.table import FORMATS
from vtune.data.formats.values import first
from vtune.data.harness import TARGETS
from vtune.data.vstar import CATEGORIES
from vtune.errors import DataError
from vtune.files.reading import open_input
from vtune.schema.fields import Row

HEAD = 2**16
"""Bytes of a file that are looked at where it is not read in rows."""
_OF_VSTAR = {"index", "image", "B", "C", "D"}
_OF_MATHS = {
    "mathvista": {"pid", "query", "answer_type", "precision"},
    "mathverse": {"problem_version", "query_wo", "question_for_eval"},
    "mathvision": {"options", "answer", "level", "subject", "decoded_image"},
}
ENDINGS = (".parquet", ".jsonl", ".json", ".tsv")


def check_look(name: str, path: Path, options: Options) -> None:
    """Check that the files under a path look like the layout that they are to be read by, or like none.

    Args:
        name: A key of `FORMATS` other than `hf`, which reads whatever its columns say.
        path: A file or folder.
        options: What the caller of the import says.

    Raises:
        DataError: Naming the first file that looks like another, and the format to import it by.
    """
    if _is_vstar(path):
        found = [(path, "vstar")]
    else:
        there = [file for file, _ in files(path, ENDINGS)] if path.exists() else []
        found = [(file, look) for file in there if (look := look_of(file)) is not None]
    right = {name, *FORMATS[name].also(options)}
    for file, look in found:
        if look not in right:
            raise DataError(
                f"this looks like a file of the format `{look}`, not of `{name}`",
                where=str(file),
                fix=f"vtune data import {look} {file} …",
            )


def look_of(file: Path) -> str | None:
    """The layout that a file looks like, by its first row or first characters; None where it is unclear."""
    if file.suffix in (".parquet", ".jsonl"):
        found = next(read_rows(file), None)
        return None if found is None or isinstance(found[1], DataError) else look_of_row(found[1])
    if file.suffix not in (".json", ".tsv"):
        return None
    try:
        with open_input(file) as stream:
            head = stream.read(HEAD).decode("utf-8-sig", errors="replace").lstrip()
    except OSError:
        return None  # who reads it says why it cannot be read
    return _tsv(head) if file.suffix == ".tsv" else _json(head)


def look_of_row(row: Row) -> str | None:
    """The layout that a row looks like; None where it may be of several."""
    judge = row.get("reward_model")
    if isinstance(judge, Mapping):
        if "verifier" in judge:
            return "samples" if "tool_ratio" in judge or any(row.get(name) for name in ADDED) else "vtriune"
        if row.get("evidence"):
            return "samples"
        if "candidate_answers" in judge:
            return "mmsearch"
        if "env_name" in row:
            environment = str(row["env_name"] or "")
            if environment == "code":
                return "codev"
            # Without one: CodeV's and DeepEyes' rows that offer no tool.
            return "deepeyes" if environment.startswith("visual_toolbox") else None
        if row.get("data_source"):
            return "verl"
        return "mars" if {"image", "image_search_title_list"} & row.keys() else None
    if "question" in row and "response" in row:
        return "thyme"
    asked = _asked(row)
    if _is_conversation(row):
        return None if asked else "conversations"
    return asked


def _asked(row: Row) -> str | None:
    """The layout of a question and its answer that a row looks like."""
    for name, columns in _OF_MATHS.items():
        if columns <= row.keys():
            return name
    asked, answered = {"problem", "question", "query"} & row.keys(), {"answer", "solution"} & row.keys()
    return "easyr1" if asked and answered else None


def _is_conversation(row: Row) -> bool:
    """Whether a row has turns of which one is the assistant's."""
    turns = first(row, "messages", "conversations", "conversation")
    spoken = turns if isinstance(turns, list) else []
    roles = [first(turn, "role", "from") for turn in spoken if isinstance(turn, Mapping)]
    return "assistant" in roles or "gpt" in roles


def _json(head: str) -> str | None:
    if head.startswith("{"):
        if '"annotations"' in head or '"categories"' in head:
            return "coco"
        return "mars" if '"annotation"' in head else None
    try:
        row: Any = json.JSONDecoder().raw_decode(head[1:].lstrip())[0]
    except (ValueError, RecursionError):
        return None  # no array, or a first row that is longer than what was looked at
    return look_of_row(row) if isinstance(row, dict) else None


def _tsv(head: str) -> str | None:
    header = next(csv.reader([head.partition("\n")[0].rstrip("\r")], delimiter="\t"), [])
    if not {"index", "image"} <= set(header):
        return None
    telling = {"cycle_category": "hrbench", "multi-choice options": "mme_realworld", TARGETS: "treebench"}
    if "grading_query" in header:
        telling |= {"inst_category": "charxiv_reasoning", "qid": "charxiv_descriptive"}
    for column, name in telling.items():
        if column in header:
            return name
    if "task" in header and "answers" in header:
        return "vlmblind"
    # V*'s own columns and no more: others of the family name a split, a subject or further levels.
    return "vstar" if {"question", "A", "answer", "category"} == set(header) - _OF_VSTAR else None


def _is_vstar(path: Path) -> bool:
    return path.is_dir() and all((path / category).is_dir() for category in CATEGORIES)
