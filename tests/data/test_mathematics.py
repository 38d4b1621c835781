"""The samples made from MathVista, MathVerse, MathVision and CharXiv."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.benchmarks import raising, write_tsv
from vtune.data.charts import DESCRIPTIVE, scan_charxiv_descriptive, scan_charxiv_reasoning
from vtune.data.formats import specimens_maths
from vtune.data.formats.specimens import Specimen
from vtune.data.mathematics import (
    scan_mathverse,
    scan_mathvision,
    scan_mathvision_mini,
    scan_mathvista,
)
from vtune.data.tsv import scan_tsv
from vtune.errors import DataError
from vtune.schema.pixels import examine
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth, verdict_on

Scan = Callable[[Path], Iterator[Sample | DataError]]


def good(found: Iterator[Sample | DataError]) -> list[Sample]:
    samples = []
    for entry in found:
        assert isinstance(entry, Sample), entry
        samples.append(entry)
    return samples


def changed(path: Path, **values: Any) -> Path:
    """The first row of a specimen's only shard, with changed values."""
    (file,) = path.rglob("*.parquet")
    table = pq.read_table(str(file)).slice(0, 1)
    for name, value in values.items():
        field = table.schema.field(name)
        table = table.set_column(table.column_names.index(name), field, pa.array([value], field.type))
    pq.write_table(table, str(file))
    return file


def test_mathvista_uses_its_query_as_prompt_and_keeps_what_its_rules_need(tmp_path: Path) -> None:
    options, whole, decimal, several = good(scan_mathvista(specimens_maths.mathvista(tmp_path).path))
    assert options.choices == ("red", "green", "blue")
    assert (options.ground_truth, options.answer, options.id) == ("B", "green", "mathvista/1")
    assert options.prompt[-1].content.startswith("<image>\nHint: ")
    assert options.prompt[-1].content.endswith("Choices:\n(A) red\n(B) green\n(C) blue")
    assert [one.verifier for one in (whole, decimal, several)] == ["math", "math", "math"]
    assert (decimal.extra["precision"], decimal.extra["unit"]) == (1, "m")
    assert (whole.extra["precision"], whole.extra["answer_type"]) == (None, "integer")
    assert len(options.extra["facets"]) == 9
    assert options.extra["facets"]["skills"] == ["geometry reasoning", "algebraic reasoning"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"answer": "violet"}, "is not one of the options"),
        ({"answer": None}, "there is no answer"),
        ({"choices": None}, "with 0 option"),
        ({"query": " "}, "the question is empty"),
        ({"query": "what is <image>?"}, "the question holds <image>"),
        ({"metadata": None}, "`metadata` is not a struct"),
    ],
)
def test_a_broken_mathvista_row_is_reported(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    file = changed(specimens_maths.mathvista(tmp_path).path, **values)
    (found,) = scan_mathvista(file)
    assert isinstance(found, DataError)
    assert said in str(found)
    assert f"{file}, row 0" in str(found)


def test_mathverse_knows_the_options_even_if_only_the_picture_shows_them(tmp_path: Path) -> None:
    text, vision, area = good(scan_mathverse(specimens_maths.mathverse(tmp_path).path))
    assert text.choices == vision.choices == ("2", "4", "8")
    assert (vision.ground_truth, vision.extra["question"]) == ("B", "")
    assert vision.extra["facets"]["problem_version"] == "Vision Only"
    assert (area.verifier, area.ground_truth, area.choices) == ("exact", "12 cm^2", ())
    assert text.prompt[-1].content.startswith("<image>\nPlease directly answer the question.")


def test_a_mathverse_letter_without_known_options_is_still_a_letter(tmp_path: Path) -> None:
    path = specimens_maths.mathverse(tmp_path).path
    (found,) = good(scan_mathverse(changed(path, question_for_eval="In the picture", answer="D")))
    assert (found.verifier, found.choices, found.ground_truth) == ("choice", (), "D")


BEARINGS = "Which bearing?\nChoice:\nA. 090^\\circ T\nB. 180^\\circ T"
SEVERAL = "Which are opposite? Choose 2 answers:\nChoices:\nA:$1$\nB:$2$\nC:$3$\nD:$4$"


@pytest.mark.parametrize(
    ("question", "truth", "verifier", "right", "wrong"),
    [
        (BEARINGS, "090^\\circ T", "choice", ["A", "(A)", "090^\\circ T"], ["B", "180^\\circ T"]),
        ("Is it?\nChoice:\nA. False\nB. True", "False", "choice", ["A", "False"], ["B", "True"]),
        ("Which?\nChoices:\nA.red\nB.blue", "(B)", "choice", ["B", "blue"], ["A", "C"]),
        (
            SEVERAL,
            "C\nD",
            "exact",
            ["C\nD", "C, D", "C,D", "C and D", "CD", "c, d", "D and C"],
            ["C", "D", "A, D", "C, C"],
        ),
        ("In the picture", "False", "exact", ["False", "false"], ["True", "A"]),
        ("In the picture", "12.5", "math", ["12.5", "25/2"], ["12"]),
    ],
)
def test_a_mathverse_answer_that_is_not_a_letter_is_scored(
    tmp_path: Path, question: str, truth: str, verifier: str, right: list[str], wrong: list[str]
) -> None:
    path = changed(specimens_maths.mathverse(tmp_path).path, question_for_eval=question, answer=truth)
    (found,) = good(scan_mathverse(path))
    assert (found.verifier, found.ground_truth) == (verifier, truth)
    check_ground_truth(found)
    for reply in right + wrong:
        assert verdict_on(f"<answer>{reply}</answer>", found).score == float(reply in right), reply


@pytest.mark.parametrize("version", ["Text Only", "text-only", "Text_Only"])
def test_only_the_text_version_of_mathverse_may_have_no_picture(tmp_path: Path, version: str) -> None:
    path = changed(specimens_maths.mathverse(tmp_path).path, image=None, problem_version=version)
    (found,) = good(scan_mathverse(path))
    assert (found.images, found.prompt[-1].images) == ((), ())
    assert "<image>" not in found.prompt[-1].content


@pytest.mark.parametrize(
    ("specimen", "column", "scan"),
    [
        (specimens_maths.mathvista, "decoded_image", scan_mathvista),
        (specimens_maths.mathverse, "image", scan_mathverse),
        (specimens_maths.mathvision, "decoded_image", scan_mathvision),
    ],
)
def test_no_question_is_asked_without_its_picture(
    tmp_path: Path, specimen: Callable[[Path], Specimen], column: str, scan: Scan
) -> None:
    file = changed(specimen(tmp_path).path, **{column: None})
    (found,) = scan(file)
    assert isinstance(found, DataError)
    assert "the row has no picture" in str(found)
    assert f"{file}, row 0" in str(found)


@pytest.mark.parametrize(("split", "scan"), [("test", scan_mathvision), ("testmini", scan_mathvision_mini)])
def test_mathvision_has_two_splits_in_one_folder(tmp_path: Path, split: str, scan: Scan) -> None:
    specimens_maths.mathvision_mini(tmp_path)
    path = specimens_maths.mathvision(tmp_path).path
    hidden, shown, share = good(scan(path))
    assert {file.name.split("-")[0] for file in path.rglob("*.parquet")} == {"test", "testmini"}
    assert hidden.choices == tuple("ABCDE")
    assert (shown.ground_truth, shown.answer) == ("B", "4")
    assert (share.choices, share.ground_truth, share.verifier) == ((), "\\frac{1}{2}", "math")
    assert hidden.extra["facets"] == {"subject": "arithmetic", "level": "1"}
    # The tag stays in the text, as in other harnesses; the picture comes before it.
    assert hidden.prompt[-1].content == (
        "<image>\nWhich figure comes next?\n<image1>\nChoices:\n(A) A\n(B) B\n(C) C\n(D) D\n(E) E"
    )
    broken = changed(specimens_maths.mathvision(tmp_path / "new").path, answer="F")
    assert "is not the letter of an option" in str(next(iter(scan_mathvision(broken))))


@pytest.mark.parametrize(
    ("truth", "reply", "verifier"),
    [
        ("\\frac{1}{2}", "0.5", "math"),
        ("2\\sqrt{3}", "$2 \\sqrt{3}$", "math"),
        ("$\\frac{\\pi}{4}$", "\\pi/4", "math"),
        ("58^{\\circ}", "58", "math"),
        ("40°", "40^\\circ", "math"),
        ("1,000", "1000", "math"),
        ("−5", "-5", "math"),
        (".35", "0.350", "math"),
        ("2^{10}", "1024", "math"),
        ("$\\boxed{\\frac{16}{7}}$", "\\frac{16}{7}", "math"),
        ("5-7", "5-7", "exact"),
        ("12 cm^2", "12 cm^2", "exact"),
        ("(1,2)", "(1, 2)", "math"),
        ("$y=2x$", "y = 2x", "math"),
        ("$y=-x^{2}+8x-15$", "y = -x^2 + 8x - 15", "math"),
        ("x=3, y=4", "x = 3, y = 4", "math"),
        ("x-axis", "x-axis", "exact"),
    ],
)
def test_a_value_in_latex_is_right_however_it_is_written(
    tmp_path: Path, truth: str, reply: str, verifier: str
) -> None:
    path = changed(specimens_maths.mathvision(tmp_path).path, answer=truth, options=[])
    (found,) = good(scan_mathvision(path))
    assert (found.ground_truth, found.verifier) == (truth, verifier)
    check_ground_truth(found)
    assert verdict_on(f"<answer>{reply}</answer>", found).score == 1.0


def test_charxiv_reads_the_truth_from_the_grading_query_or_its_column(tmp_path: Path) -> None:
    path = specimens_maths.charxiv_reasoning(tmp_path).path
    name, number = good(scan_charxiv_reasoning(path))
    assert (name.ground_truth, number.ground_truth) == ("P-101", "0.50")
    assert name.extra["facets"] == {"category": "text in chart", "inst_category": "1"}
    assert "{PREDICTION}" in name.extra["grading_query"]
    rows = [
        {**row.values, "image": specimens_maths.coded(0), "answer": "P-102"}
        for row in raising(scan_tsv(path, ["question"]))
    ]
    write_tsv(path, rows)
    assert {sample.ground_truth for sample in good(scan_charxiv_reasoning(path))} == {"P-102"}
    title, count = good(scan_charxiv_descriptive(specimens_maths.charxiv_descriptive(tmp_path).path))
    assert (title.ground_truth, count.extra["category"]) == ("Not Applicable", "counting")
    assert sorted(DESCRIPTIVE) == list(range(1, 20))


@pytest.mark.parametrize(
    ("truth", "right", "wrong"),
    [
        ("0.35", [".35", "0.350", "0.35 m", "**0.35**"], ["0.36", "0.35 or 0.4"]),
        ("12,000", ["12000", "12,000 units", "12 000"], ["12", "12000000"]),
        ("−5", ["-5", "−5", "-5.0"], ["5"]),
        ("2018-2019", ["2018-2019"], ["-1", "2018"]),
    ],
)
def test_a_number_in_a_chart_is_right_however_it_is_written(
    tmp_path: Path, truth: str, right: list[str], wrong: list[str]
) -> None:
    path = specimens_maths.charxiv_reasoning(tmp_path).path
    path.write_text(path.read_text().replace("0.50", truth))
    _, found = good(scan_charxiv_reasoning(path))
    check_ground_truth(found)
    for reply in right + wrong:
        assert verdict_on(f"<answer>{reply}</answer>", found).score == float(reply in right), reply


def test_a_grading_query_without_a_place_for_the_answer_is_refused(tmp_path: Path) -> None:
    path = specimens_maths.charxiv_descriptive(tmp_path).path
    path.write_text(path.read_text().replace("{PREDICTION}", "", 1).replace("\t19\n", "\t20\n"))
    first, second = scan_charxiv_descriptive(path)
    assert "does not hold {PREDICTION} once" in str(first)
    assert "`qid` is '20'" in str(second)


@pytest.mark.parametrize("kind", ["MPO", "WEBP", "PNG", "JPEG"])
def test_the_picture_kinds_of_mathvista_can_be_opened(kind: str) -> None:
    out = BytesIO()
    picture = Image.new("RGB", (187, 18), "red")
    more = {"save_all": True, "append_images": [picture]} if kind == "MPO" else {}
    picture.save(out, kind, **more)
    examine(out.getvalue())
