"""The small metrics of OCRBench v2: awkward answers, and slow references."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verifiers.cases import sample
from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS, check_ground_truth
from vtune.verifiers.perfect import check_full_marks
from vtune.verifiers.reading import METRICS, OFFICIAL
from vtune.verifiers.readings import field_share, fields_in
from vtune.verifiers.verifier import ELSEWHERE

LONG = "the quick brown fox jumps over"

# metric, truth, answer -> measured score of the upstream functions
ROWS: list[tuple[str, Any, str, float]] = [
    ("letters", ["B"], "B", 1.0),
    ("letters", ["B"], "(B).", 1.0),
    ("letters", ["B"], "B 12", 1.0),
    ("letters", ["B"], "b", 0.0),
    ("letters", ["B"], "The answer is B", 0.0),
    ("contains", ["Exit"], "exit", 1.0),
    ("contains", ["Exit"], "It says EXIT.", 1.0),
    ("contains", ["No"], "I do not know", 1.0),
    ("contains", ["2"], "12", 1.0),
    ("contains", ["a\nb"], "A B", 1.0),
    ("contains", ["one", "two"], "two", 1.0),
    ("contains", ["one two"], "one  two", 0.0),
    ("contains", [LONG], LONG.upper(), 1.0),
    ("contains", [LONG], LONG[:15], 0.5),
    ("contains", [LONG], LONG[:14], 0.0),
    ("contains", [LONG], f"It says: {LONG}", 1 - 9 / 39),
    ("contains", [LONG], "x" * 500, 0.0),
    ("contains_cased", ["Exit"], "exit", 0.0),
    ("contains_cased", ["Exit"], "an Exit", 1.0),
    ("contains_cased", [LONG], LONG.upper(), 0.0),
    ("contains_chinese", ["北 京"], "在北京", 1.0),
    ("contains_chinese", ["a,b,c"], "A, B, C", 1.0),
    ("contains_chinese", ["a,b,c,d"], "a,b,c,e", 1 - 1 / 7),
    ("handwritten", ["ABD"], "A、B、D", 1.0),
    ("handwritten", ["ABD"], "A and B and D", 0.0),
    ("handwritten", ["A"], "BA", 1.0),
    ("count_exact", ["2"], "12", 1.0),
    ("count_exact", ["2"], "two", 0.0),
    ("count_near", ["10"], "about 9 or 10", 0.9),
    ("count_near", ["10"], "5", 0.0),
    ("count_near", ["10"], "15", 0.0),
    ("count_near", ["10"], "14", 0.6),
    ("count_near", ["10"], "-10", 1.0),
    ("count_near", ["10"], "0", 0.0),
    ("count_near", ["10"], "none", 0.0),
    ("formula", ["x ^ 2"], "$x^2$", 1.0),
    ("formula", ["x ^ 2"], "x squared", 0.0),
    ("formula_chinese", ["\\text{a}+b"], "a+ b", 1.0),
    ("box", [100, 100, 200, 200], "[100, 100, 200, 200]", 1.0),
    ("box", [100, 100, 200, 200], "(100,100,200,150)", 0.5),
    ("box", [100, 100, 200, 200], "[0, 0, 9, 9] or [100, 100, 200, 200]", 1.0),
    ("box", [100, 100, 200, 200], "[100, 100, 200, 200], [0, 0, 9, 9]", 0.0),
    ("box", [100, 100, 200, 200], "[100, 100, 200, 200] [1, 1, 2, 3000]", 1.0),
    ("box", [100, 100, 200, 200], "[0.1, 0.1, 0.2, 0.2]", 0.0),
    ("fields", {"total": ["12", "12.00"]}, '{"total": "12.00"}', 1.0),
    ("fields", {"total": ["12"]}, "{'total': 12}", 1.0),
    ("fields", {"total": ["12"], "date": ["1 May"]}, "total: 12\ndate: 1MAY", 1.0),
    ("fields", {"total": ["12"], "date": ["1 May"]}, '```json\n{"total": "12"}\n```', 0.5),
    ("fields", {"total": ["12"]}, '{"total": "12", "more": "x"}', 0.5),
    ("fields", {"total": ["12"]}, "[12]", 0.0),
]


def task(metric: str, truth: Any, **parm: Any) -> Sample:
    return sample("reading", json.dumps(truth), parm={"metric": metric, "answer_in": "reply", **parm})


def score(metric: str, truth: Any, answer: str, **parm: Any) -> float:
    return VERIFIERS["reading"].verify(answer, task(metric, truth, **parm)).score


@pytest.mark.parametrize(("metric", "truth", "answer", "wanted"), ROWS)
def test_answers_score_like_upstream(metric: str, truth: Any, answer: str, wanted: float) -> None:
    assert len(ROWS) >= 30
    assert score(metric, truth, answer) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ('{"answer": "exit", "bbox": [100, 100, 200, 200]}', 1.0),
        ("{'answer': 'exit', 'bbox': [100, 100, 200, 150]}", 0.75),
        ('{"answer": "hall", "bbox": ["100", "100", "200", "200"]}', 0.5),
        ('{"answer": "exit", "bbox": "nowhere"}', 0.5),
        ('{"bbox": [100, 100]}', 0.0),
        ("[100, 100, 200, 200]", 0.0),
    ],
)
def test_text_and_place_of_an_answer_count_half_each(answer: str, wanted: float) -> None:
    assert score("answer_and_box", ["Exit"], answer, bbox=[100, 100, 200, 200]) == wanted


@pytest.mark.parametrize("metric", OFFICIAL)
def test_an_answer_for_the_official_scorer_is_unscored_with_the_reason(metric: str) -> None:
    question = task(metric, ["<table>"])
    check_ground_truth(question)
    check_full_marks(question, None)
    with pytest.raises(DataError, match=ELSEWHERE):
        VERIFIERS["reading"].verify("<table></table>", question)
    nothing = VERIFIERS["reading"].verify(" ", question)
    assert (nothing.score, nothing.parts["unreadable"]) == (0.0, 1.0)
    elsewhere = VERIFIERS["reading"].elsewhere
    assert elsewhere is not None
    assert elsewhere(question)
    assert not elsewhere(task("contains", ["x"]))


@pytest.mark.parametrize(
    ("metric", "truth"),
    [
        ("letters", "B"),
        ("box", [1, 2, 3]),
        ("fields", ["a"]),
        ("fields", {}),
        ("count_near", ["ten"]),
        ("contains", []),
    ],
)
def test_a_malformed_ground_truth_is_our_error(metric: str, truth: Any) -> None:
    with pytest.raises(DataError, match="is not something that"):
        check_ground_truth(task(metric, truth))


@pytest.mark.parametrize(("metric", "truth"), {m: t for m, t, _, _ in ROWS}.items())
def test_the_truth_itself_earns_full_marks(metric: str, truth: Any) -> None:
    check_full_marks(task(metric, truth), None)


def slow_anls(a: str, b: str) -> float:
    """The textbook algorithm over the whole table."""
    table = [[max(i, j) if not i or not j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
        table[i][j] = min(
            table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1])
        )
    value = 1 - table[-1][-1] / max(len(a), len(b))
    return value if value >= 0.5 else 0.0


WORDS = st.text(st.sampled_from("ab "), min_size=1, max_size=25)


@given(answer=WORDS, truth=st.lists(st.sampled_from(["aa", "b", "ab"]), min_size=5, max_size=7).map(" ".join))
def test_long_truths_are_compared_by_edit_distance(answer: str, truth: str) -> None:
    flat = answer.strip()
    wanted = slow_anls(flat, truth) if flat else 0.0
    assert score("contains", [truth], answer) == pytest.approx(wanted)


KEYS = st.sampled_from(["a", "b", "c"])


@given(
    found=st.dictionaries(KEYS, st.sampled_from("xyz")),
    truths=st.dictionaries(KEYS, st.lists(st.sampled_from("xyz"), min_size=1, max_size=3), min_size=1),
)
def test_alternatives_use_the_best_combination(found: dict[str, str], truths: dict[str, list[str]]) -> None:
    def share(one: dict[str, str]) -> float:
        keys = found.keys() | one.keys()
        return sum(found.get(key) == one.get(key) for key in keys) / len(keys)

    every: list[Sequence[str]] = list(itertools.product(*truths.values()))
    wanted = max(share(dict(zip(truths, values, strict=True))) for values in every)
    assert field_share(json.dumps(found), truths) == pytest.approx(wanted)


TRUTHS: dict[str, Any] = {
    **{metric: ["12"] for metric in METRICS},
    "fields": {"a": ["1"]},
    "box": [1, 2, 30, 40],
}


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.sampled_from("0123456789.,:=[](){}<>`\"'\\ \nabjsonbboxanswer北"), max_size=60))
def test_no_answer_raises_and_scores_are_between_0_and_1(text: str) -> None:
    for metric in set(METRICS) - OFFICIAL.keys():
        for answer in (text, f'{{"answer": "1", "bbox": {text}}}', f"```json\n{text}\n```"):
            first = score(metric, TRUTHS[metric], answer, bbox=[1, 2, 30, 40])
            assert 0.0 <= first <= 1.0
            assert first == score(metric, TRUTHS[metric], answer, bbox=[1, 2, 30, 40])


@pytest.mark.parametrize("piece", ["[", "(1,", "1", "a:", "{", "```", "\\text{", "'", "a ", " "])
def test_long_answers_are_scored_quickly(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    for metric in set(METRICS) - OFFICIAL.keys():
        score(metric, TRUTHS[metric], text, bbox=[1, 2, 30, 40])


def test_no_model_output_is_executed() -> None:
    assert fields_in("{'a': __import__('os').getpid()}") == {"a": "__import__("}
