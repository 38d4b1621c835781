"""Benchmarks in their published layout with one question per awkward reply, and the replies."""

import csv
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from tests.protocols.test_parsers import BLIND, COUNTS, FOUR, LETTERS, OPEN, REALWORLD
from vtune.data.formats import specimens_maths
from vtune.data.formats.specimens import coded

QUESTION = "What is the colour of the sign?"
WORDS = ("red", "blue", "Green", "BLACK", "the red one", "a white thing")
FORMS = (
    *(
        "{}",
        "({})",
        "{}.",
        "**{}**",
        "Answer: {}",
        "The answer is {}.",
        "the correct answer is {}",
        "Option {}",
    ),
    *(
        "{} because it is so",
        "I would say {}",
        "It is {}, not B",
        "\\boxed{{{}}}",
        "[{}]",
        "{}:",
        "- {}",
        "# {}",
    ),
    *("A sign that is {}", "Final answer:\n{}", "{}\n", "\n\n{}", "so {} it is, as far as I can see it here"),
    *("The best answer is {}", "Best option: {}", "It could be {}", "answer is {}", "ANSWER: {}", "'{}'"),
)
LETTERED = [form.format(what) for form, what in product(FORMS, (*"ABCD", *WORDS))]
DIGITS = [form.format(what) for form, what in product(FORMS, ("2", "12", "two", "3", "0"))]
ODD = [
    "None",
    "nan",
    "NA",
    "null",
    "=2",
    "+B",
    "http://B",
    "1e5",
    "True",
    "B\tC",
    "é B",
    "答案是B",
]


def _write(path: Path, rows: list[dict[str, str]]) -> Path:
    for number, row in enumerate(rows):
        row |= {"index": str(number), "image": coded(0)}
    header = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, header, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def _choices(replies: list[str], **more: Any) -> Iterator[tuple[dict[str, str], str]]:
    """A question for each reply and each of two truths, so that it is right for one or neither."""
    options = dict(zip("ABCD", FOUR, strict=True))
    for number, reply in enumerate(replies):
        for truth in ("B", "ACD"[number % 3]):
            yield {"question": QUESTION, **options, "answer": truth, **more}, reply


def vstar(folder: Path) -> tuple[Path, list[str]]:
    rows = list(_choices([*LETTERS, *LETTERED, *ODD], category="direct_attributes"))
    return _write(folder / "VStarBench.tsv", [row for row, _ in rows]), [reply for _, reply in rows]


def hrbench(folder: Path) -> tuple[Path, list[str]]:
    rows = list(_choices([*LETTERS, *LETTERED, *ODD], category="single", cycle_category="0"))
    return _write(folder / "hr_bench_4k.tsv", [row for row, _ in rows]), [reply for _, reply in rows]


def realworld(folder: Path) -> tuple[Path, list[str]]:
    replies = [*REALWORLD, *LETTERED, *ODD, *(f"<answer>{reply}</answer>" for reply in LETTERED)]
    options = str([f"({letter}) {word}" for letter, word in zip("ABCDE", (*FOUR, "not there"), strict=True)])
    shared = {"question": QUESTION, "multi-choice options": options, "l2-category": "color"}
    rows = [
        {**shared, "answer": truth, "category": "Perception/Remote Sensing"}
        for number in range(len(replies))
        for truth in ("B", "ACDE"[number % 4])
    ]
    return _write(folder / "mme_realworld_lite.tsv", rows), [reply for reply in replies for _ in range(2)]


def mmmu(folder: Path) -> tuple[Path, list[str]]:
    rows = list(_choices([*LETTERS, *LETTERED, *ODD], split="validation", **{"l2-category": "Art"}))
    for reply in (*OPEN, *DIGITS):
        for truth in ("['24/7', '3.429']", "2"):
            none = dict.fromkeys("ABCD", "")
            row = {"question": "How many?", **none, "answer": truth, "split": "validation"}
            rows.append((row | {"l2-category": "Art"}, reply))
    return _write(folder / "MMMU_DEV_VAL.tsv", [row for row, _ in rows]), [reply for _, reply in rows]


def countbench(folder: Path) -> tuple[Path, list[str]]:
    replies = [*COUNTS, *DIGITS, *ODD]
    rows = [{"question": "How many signs are there?", "answer": truth} for _ in replies for truth in "23"]
    return _write(folder / "CountBenchQA.tsv", rows), [reply for reply in replies for _ in range(2)]


def vlmblind(folder: Path) -> tuple[Path, list[str]]:
    truths = list(dict.fromkeys((task, truth) for task, truth, *_ in BLIND))
    replies = list(dict.fromkeys(reply for _, _, reply, *_ in BLIND)) + ODD
    rows = [{"question": "?", "task": task, "answers": truth} for task, truth in truths for _ in replies]
    return _write(folder / "VLMBlind.tsv", rows), [reply for _ in truths for reply in replies]


FIGURES: tuple[dict[str, Any], ...] = (
    {"choices": list(FOUR), "answer": "blue"},
    {"answer": "2", "answer_type": "integer"},
    {"answer": "1.5", "answer_type": "float", "precision": 1.0},
    {"answer": "[2007, 2008]", "answer_type": "list"},
)
SHORT = (
    "1.5",
    "1.50",
    "1.46",
    "1.449",
    "2",
    "2.0",
    "2.9",
    "-2",
    " 2",
    "two",
    "1e0",
    "[2007, 2008]",
    "(B) blue",
    "(b)",
)


def mathvista(folder: Path) -> tuple[Path, list[str]]:
    """A question for each kind of answer and each reply."""
    replies = [*LETTERS, *LETTERED[::3], *DIGITS[::3], *ODD, *SHORT, "2007 to 2008", "[2007,2008]", "1.5 m"]
    rows = [{"question": QUESTION, **figure} for figure in FIGURES for _ in replies]
    return specimens_maths.mathvista(folder, rows).path, replies * len(FIGURES)


SUITES = {
    "vstar": vstar,
    "hrbench-4k": hrbench,
    "mme-realworld-lite": realworld,
    "mmmu": mmmu,
    "vlmblind": vlmblind,
    "countbench": countbench,
    "mathvista": mathvista,
}
