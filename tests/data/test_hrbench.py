import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.benchmarks import COLOURS, hrbench_rows, picture, raising, write_tsv
from tests.runs.evaluate.scripted import asked, evaluated, write_script
from vtune.data.hrbench import scan_hrbench
from vtune.errors import DataError
from vtune.protocols import PROTOCOLS
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth


def read_hrbench(path: Path) -> Iterator[Sample]:
    return raising(scan_hrbench(path))


PICTURES = [picture(number, (60, 40), (5, 5, 9, 9)) for number in range(2)]


def test_every_row_becomes_a_sample_with_its_rotation(tmp_path: Path) -> None:
    samples = list(read_hrbench(write_tsv(tmp_path / "hr_bench_4k.tsv", hrbench_rows(PICTURES))))
    assert [sample.id for sample in samples] == [f"hr_bench_4k/{number}" for number in range(8)]
    assert {sample.source for sample in samples} == {"hr_bench_4k"}
    assert [sample.images[0].data for sample in samples] == [PICTURES[0]] * 4 + [PICTURES[1]] * 4
    assert [sample.ground_truth for sample in samples[:4]] == ["A", "D", "C", "B"]
    assert {sample.answer for sample in samples[:4]} == {"red"}
    assert samples[4].extra == {"index": "4", "category": "cross", "cycle_category": "0"}
    assert samples[0].evidence == ()
    for sample in samples:
        check_ground_truth(sample)


def test_a_row_may_refer_to_the_row_with_its_picture(tmp_path: Path) -> None:
    rows = hrbench_rows(PICTURES)
    for number in (1, 2, 3):
        rows[number]["image"] = "0"
    rows[0]["question"] = 'Two\nlines and a\t"tab"?'  # so that a record spans several lines
    samples = list(read_hrbench(write_tsv(tmp_path / "hr.tsv", rows)))
    assert [sample.images[0].data for sample in samples] == [PICTURES[0]] * 4 + [PICTURES[1]] * 4
    assert samples[0].question.startswith('Two\nlines and a\t"tab"?\nA. red')


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        pytest.param({"answer": "E"}, "not the letter of an option", id="letter without option"),
        pytest.param({"answer": "AB"}, "not the letter of an option", id="two letters"),
        pytest.param({"B": "", "C": "nan", "D": ""}, "fewer than two", id="one option"),
        pytest.param({"D": ""}, "'D' is not the letter of an option", id="the right option is missing"),
        pytest.param({"category": "OCR"}, "unknown category 'OCR'", id="category"),
        pytest.param({"index": "0"}, "appears twice", id="index"),
        pytest.param({"image": "!" * 80}, "not base64", id="no base64"),
        pytest.param({"image": "é" * 80}, "not base64", id="beyond ASCII"),
        pytest.param({"image": "99"}, "nor the index of an earlier row", id="a row that is not there"),
        pytest.param({"image": "notbase64!!"}, "neither a picture in base64", id="short, no base64"),
    ],
)
def test_a_row_unlike_the_published_ones_is_reported(
    tmp_path: Path, changes: dict[str, str], what: str
) -> None:
    rows = hrbench_rows(PICTURES)
    rows[5] |= changes
    with pytest.raises(DataError) as error:
        list(read_hrbench(write_tsv(tmp_path / "hr.tsv", rows)))
    assert what in error.value.what
    assert error.value.where == f"{tmp_path / 'hr.tsv'}, row 5"
    assert error.value.fix


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    rows = [
        {name: value for name, value in row.items() if name != "answer"} for row in hrbench_rows(PICTURES)
    ]
    with pytest.raises(DataError, match="no column `answer`"):
        list(read_hrbench(write_tsv(tmp_path / "hr.tsv", rows)))
    with pytest.raises(DataError, match="cannot read"):
        list(read_hrbench(tmp_path / "none.tsv"))
    (tmp_path / "short.tsv").write_bytes((tmp_path / "hr.tsv").read_bytes()[:-40] + b"\tmore\tand more\n")
    (tmp_path / "binary.tsv").write_bytes(b"index\timage\n\xff\xfe\tx\n")
    for name in ("short.tsv", "binary.tsv"):
        with pytest.raises(DataError):
            list(read_hrbench(tmp_path / name))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    large = [picture(number, (500, 350), (5, 5, 9, 9), "BMP") for number in range(6)]
    peaks = []
    for count in (2, 6):
        file = write_tsv(tmp_path / "hr.tsv", hrbench_rows(large[:count]))
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_hrbench(file)) == 4 * count
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 10 * len(large[0])


def with_gaps() -> list[dict[str, str]]:
    """Questions with three options, whose rotations move the gap through all four columns."""
    rows = hrbench_rows(PICTURES)
    for number, row in enumerate(rows):
        missing = COLOURS[(number // 4 + 2) % 4]
        (letter,) = (letter for letter in "ABCD" if row[letter] == missing)
        row[letter] = ("", "nan")[number % 2]  # as written by other programs and by pandas
    return rows


@pytest.mark.parametrize("protocol", ["vtune", "vlmevalkit", "lmms-eval", "evalscope", "mars", "paper"])
def test_a_missing_option_does_not_change_the_other_letters(protocol: str, tmp_path: Path) -> None:
    rows = with_gaps()
    samples = asked("hrbench-4k", write_tsv(tmp_path / "hr_bench_4k.tsv", rows), f"protocol={protocol}")
    assert [sample.ground_truth for sample in samples] == ["A", "D", "C", "B", "A", "D", "C", "B"]
    rule = PROTOCOLS[protocol].rule("hrbench")
    assert rule is not None
    gaps = []
    for sample, row in zip(samples, rows, strict=True):
        shown = sample.prompt[-1].content
        here = {letter: row[letter] for letter in "ABCD" if row[letter] not in ("", "nan")}
        for letter in "ABCD":
            marks = [
                mark for mark in (".", ")") if f"\n{letter}{mark}" in shown or f"({letter}{mark}" in shown
            ]
            assert bool(marks) == (letter in here), shown
            assert all(f"{letter}{mark} {here[letter]}" in shown for mark in marks)
        (gap,) = set("ABCD") - set(here)
        gaps.append(gap)
        right, free = (
            rule.grade(f"<answer>{letter}</answer>", sample) for letter in (sample.ground_truth, gap)
        )
        if rule.reads == "answer":
            right, free = (rule.grade(letter, sample) for letter in (sample.ground_truth, gap))
        assert (right.score, free.score, free.unreadable) == (1.0, 0.0, True)
        assert free.fallback == (0.25 if protocol in ("vlmevalkit", "paper") else 0.0)
        assert rule.grade("I cannot see a sign that has a colour at all here.", sample).unreadable
    assert gaps[:4] == ["C", "B", "A", "D"]


def test_the_rotation_score_includes_questions_with_a_missing_option(tmp_path: Path) -> None:
    file = write_tsv(tmp_path / "hr_bench_4k.tsv", with_gaps())
    samples = asked("hrbench-4k", file)
    replies = {
        sample.id: ["B" if number < 4 else sample.ground_truth] for number, sample in enumerate(samples)
    }
    model = write_script(tmp_path / "r.jsonl", replies)
    score = evaluated("hrbench-4k", model, file, tmp_path / "out", "--agent", "direct")["score"]
    # "B" is right in one of the four rotations, wrong in two, and missing in one.
    assert (score["score"], score["fsp"], score["fcp"], score["unreadable"]) == (5 / 8, 1 / 4, 1.0, 1)
    assert {name: cycle["fsp"] for name, cycle in score["cycles"].items()} == {"0": 0, "1": 0, "2": 0, "3": 1}
