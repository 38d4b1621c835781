"""A few rows of the benchmarks that are TSV files (see `specimens`)."""

import csv
from collections.abc import Sequence
from pathlib import Path

from vtune.data.formats.specimens import TARGET, Specimen, coded


def hrbench(folder: Path) -> Specimen:
    """HR-Bench: one question per category, four times with its options rotated."""
    rows: list[dict[str, str]] = []
    for number, category in enumerate(("single", "cross")):
        options = ["red", "green", "blue", "yellow"]
        for cycle in range(4):
            turned = options[cycle:] + options[:cycle]
            rows.append(
                {
                    "index": str(len(rows)),
                    "image": coded(number),
                    "question": "What is the colour of the sign?",
                    **dict(zip("ABCD", turned, strict=True)),
                    "answer": "ABCD"[turned.index("red")],
                    "category": category,
                    "cycle_category": str(cycle),
                }
            )
    return Specimen(table(folder / "hr_bench_4k.tsv", rows))


def realworld(folder: Path) -> Specimen:
    """MME-RealWorld-Lite: five options as a Python list."""
    options = ["(A) red", "(B) green", "(C) blue", "(D) yellow", "(E) The image does not feature the sign"]
    shared = {"question": "What is the colour of the sign?", "multi-choice options": str(options)}
    sorts = (("Perception/Remote Sensing", "color"), ("Reasoning/Monitoring", "intention"))
    rows = [
        {**_coloured(number), **shared, "answer": "AE"[number], "category": category, "l2-category": below}
        for number, (category, below) in enumerate(sorts)
    ]
    return Specimen(table(folder / "mme_realworld_lite.tsv", rows))


def treebench(folder: Path) -> Specimen:
    """TreeBench: options in columns, and the boxes of the targets."""
    rows = [
        {
            **_coloured(number),
            "question": "What is the colour of the sign?",
            **dict(zip("ABCD", ("red", "white", "blue", "yellow"), strict=True)),
            "answer": "B",
            "category": category,
            "l2-category": "Attributes",
            "target_instances": str([list(TARGET)]),
        }
        for number, category in enumerate(("Perception", "Reasoning"))
    ]
    return Specimen(table(folder / "TreeBench.tsv", rows))


def mmmu(folder: Path) -> Specimen:
    """MMMU: a question with two pictures in its text, one without options, one from the split `dev`."""
    one, two = coded(0), coded(1)
    common = {"l2-category": "Art"}
    rows = [
        {
            "index": "1",
            "image": str([one, two]),
            "question": "<image 1> Is the sign as in <image 2>?",
            "A": "yes",
            "B": "no",
            "answer": "A",
            "split": "validation",
            **common,
        },
        {
            "index": "2",
            "image": one,
            "question": "How many signs does <image 1> show?",
            "A": "",
            "B": "",
            "answer": "['1', 'one']",
            "split": "validation",
            **common,
        },
        {
            "index": "3",
            "image": one,
            "question": "Q",
            "A": "a",
            "B": "b",
            "answer": "A",
            "split": "dev",
            **common,
        },
    ]
    return Specimen(table(folder / "MMMU_DEV_VAL.tsv", rows))


def mmmu_pro(folder: Path) -> Specimen:
    """MMMU-Pro: one question with ten options, one with a single option."""
    rows = [
        {
            **_coloured(number),
            "question": "What is the sum of both numbers in <image 1>?",
            **{letter: str(place) if place < count else "" for place, letter in enumerate("ABCDEFGHIJ")},
            "answer": "A",
            "subject": "Math",
        }
        for number, count in enumerate((10, 1))
    ]
    return Specimen(table(folder / "MMMU_Pro_10c.tsv", rows))


def mmmu_pro_vision(folder: Path) -> Specimen:
    """MMMU-Pro in pictures: only the options, as a Python list."""
    rows = [
        {**_coloured(number), "options": str(["red", "green", "blue"]), "answer": "B", "subject": "Art"}
        for number in range(2)
    ]
    return Specimen(table(folder / "MMMU_Pro_V.tsv", rows))


def countbench(folder: Path) -> Specimen:
    """CountBenchQA: a question and a number."""
    rows = [
        {**_coloured(number), "question": "How many signs are there in the image?", "answer": str(number + 2)}
        for number in range(2)
    ]
    return Specimen(table(folder / "CountBenchQA.tsv", rows))


def blind(folder: Path) -> Specimen:
    """VLMs Are Blind: one question from each of four tasks."""
    asked = {
        "Nested Squares": ("How many squares are there? Answer with a number in curly brackets.", "3"),
        "Touching Circles": ("Are the two circles touching each other? Answer with Yes/No.", "No"),
        "Olympic Counting - Circles": ("How many circles are there? Answer with a number only.", "5"),
        "Counting Grid - Word Grids": ("Count the rows and columns: rows={5} columns={6}.", "4,5"),
    }
    rows = [
        {**_coloured(number), "question": question, "answers": truth, "task": task}
        for number, (task, (question, truth)) in enumerate(asked.items())
    ]
    return Specimen(table(folder / "VLMBlind.tsv", rows))


def _coloured(number: int) -> dict[str, str]:
    """Index and picture of a row."""
    return {"index": str(number), "image": coded(number)}


def table(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    """A TSV file, as pandas writes it."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
