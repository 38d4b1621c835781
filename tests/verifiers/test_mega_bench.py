"""MEGA-Bench's parsers and metrics: verdicts match those of the upstream functions.

The scores of `ODD` and the fields of `PARSED` were obtained by running TIGER-AI-Lab/MEGA-Bench ee324ab
(`MetricType.match`, `ResponseParseType.parse`; rapidfuzz 3.14.6, Unidecode 1.4.0, sympy 1.13.3).
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verifiers.cases import sample
from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS, scored_elsewhere
from vtune.verifiers.mega_bench import OFFICIAL, aggregated
from vtune.verifiers.mega_metrics import METRICS, score
from vtune.verifiers.mega_parsing import LONGEST, PARSERS, fields_of, json_in, literal
from vtune.verifiers.mega_texts import edits

BOX = "(0.1, 0.1, 0.5, 0.5)"
ODD: list[tuple[str, Any, Any, float]] = [
    ("exact_str_match", "Because", "B", 1),
    ("exact_str_match", "(B) a cup", "B", 1),
    ("exact_str_match", "b", "B", 0),
    ("exact_str_match", 3, "3", 1),
    ("exact_str_match_case_insensitive", "EXIT", "exit", 1),
    ("exact_str_match_case_insensitive", 3, "3", 0),
    ("simple_str_match", "a-b c.", "ABC", 1),
    ("simple_str_match", None, "none", 1),
    ("multi_ref_phrase", "12km", "['12 km', 'twelve']", 1),
    ("near_str_match", "The Café", "cafe", 1),
    ("near_str_match", "cup", "cap", 0),
    ("normalized_similarity_damerau_levenshtein", "abdcef", "abcdef", 1 - 1 / 6),
    ("normalized_similarity_damerau_levenshtein", "", "", 1),
    ("number_rel_diff_ratio", "3.5", "3", 1 - 0.5 / 3),
    ("number_rel_diff_ratio", 3, "3", 1),
    ("number_rel_diff_ratio", "3", "0", 0),
    ("positive_int_match", "3", "3", 1),
    ("positive_int_match", 3, "3", 0),
    ("positive_int_match", "-2", "0", -1),
    ("normalized_rmse", "0.55", "0.5", 0.5),
    ("set_equality", "a,b", ["b", "a"], 1),
    ("set_equality", "None", "[]", 0),
    ("set_equality_case_insensitive", "c, B", "['b', 'C']", 1),
    ("str_set_equality_line_break", "Line2\nLine1", "line1\\nline2", 1),
    ("str_set_equality_comma", ["a"], "a", 0),
    ("jaccard_index", "[1, 2]", "[2, 3]", 1 / 3),
    ("jaccard_index", None, "[]", 0),
    ("jaccard_index_case_insensitive", "[('ab','c')]", "[('a b','C.')]", 1),
    ("set_precision", "[]", "[1]", 1),
    ("chess_move_list_jaccard_index", "e4, Qh5#", "Qh5#!, e4", 1),
    ("longest_common_list_prefix_ratio", "[1, 2, 4]", "[1, 2, 3]", 2 / 3),
    ("longest_common_list_prefix_ratio", [1, 2, 3], "[1, 2, 3]", 0),
    ("sequence_equality", [1, 2], "[1, 2]", 1),
    ("sequence_accuracy_case_insensitive", "a,x", "A,B", 0.5),
    ("angle_seq_float_rmse", "[12, 20.5]", "[10, 20]", 0.875),
    ("dict_equality", "{'a': 1}", {"a": 1}, 1),
    ("dict_precision", {"a": "x", "b": "z"}, {"a": "x", "b": "y"}, 0.5),
    ("dict_exact_str_match_agg_recall", {"a": "x"}, {"a": "x", "b": "y"}, 0.5),
    ("dict_set_equality_agg_jaccard", {"a": [1, 2]}, {"a": [2, 1], "b": []}, 1),
    ("dict_jaccard_agg_jaccard", {}, {}, 0),
    ("nbbox_iou_tuple", [0.1, 0.1, 0.5, 0.5], BOX, 0),
    ("nbbox_iou_tuple", BOX, BOX, 1),
    ("nbbox_iou_sequence", f"[{BOX}, {BOX}]", f"[{BOX}]", 0),
    ("xml_nbbox_iou_single", "<box>0.1,0.1,0.5,0.5</box>", "<box>0.1,0.1,0.5,0.3</box>", 0.5),
    ("xml_norm_point_in_bbox", "<point>0.5, 0.1</point>", [BOX], 1),
    ("xml_norm_point_in_bbox", "<point>0.3,0.3</point><point>0.3,0.3</point>", [BOX], 0),
    ("xml_norm_point_distance", "<point>1.3, 0.4</point>", "<point>0.3, 0.4</point>", 0),
    ("boxed_single_numerical_match", "\\boxed{\\frac{1}{2}}", "0.5", 1),
    ("boxed_single_numerical_match", "so 50%", "\\boxed{0.5}", 0),
    ("general_single_numerical_match", "x = 1,000", "1000", 1),
    ("general_single_numerical_match", "2\\pi", "6.28", 1),
    ("general_single_numerical_match", "\\sqrt{4}", "2", 0),
    ("general_single_numerical_match", "[2, 1]", "[1, 2]", 1),
    ("general_single_numerical_match", "(1, 2)", "(1, 2)", 0),
    ("general_single_numerical_match", "12 km", "12km", 1),
]
PARSED = [
    ("answer_string", "**Answer:** C", ""),
    ("answer_string", "**Answer: C**", "C"),
    ("answer_string", "Answer: x\nAnswer: y", "y"),
    ("answer_string", "Answer: A\n\nBecause it is.", "A"),
    ("answer_string", "Answer: 'x'", "x"),
    ("answer_string", "Answer: ```python\nfoo\n```", "foo"),
    ("answer_string", "xAnswer: y", "xAnswer: y"),
    ("answer_string", "Answer: {broken", "{broken"),
    ("ascii_answer_string", "Answer:\n```\n  /\\\n /  \\\n```", "  /\\\n /  \\"),
    ("verbatim_answer_string", "Answer:\n  a\n\n\n\n  b  \n \n", "  a\n\n  b  "),
    ("json", '```json\n{"answer": "x"}\n```', "x"),
    ("json", "text {'answer': 'x'} more {\"answer\": \"y\"}", "y"),
    ("json", "no answer", "no answer"),
    ("json", '[1] {"answer": "\'q\'"}', "q"),
]
TEXT = st.text(st.sampled_from("ab cAB[]{}(),'\"1.:\n-+"), max_size=30)


def question(truths: dict[str, Any], **parm: Any) -> Sample:
    return sample("mega_bench", json.dumps(truths), parm={"answer_in": "reply", **parm})


@pytest.mark.parametrize(("metric", "answer", "truth", "expected"), ODD)
def test_an_odd_answer_scores_like_upstream(metric: str, answer: Any, truth: Any, expected: float) -> None:
    assert score(metric, answer, truth) == pytest.approx(expected)


@pytest.mark.parametrize(("parser", "reply", "expected"), PARSED)
def test_an_answer_is_parsed_like_upstream(parser: str, reply: str, expected: str) -> None:
    assert fields_of(reply, parser, {"answer": "x"}) == {"answer": expected}


@given(answer=TEXT | st.lists(TEXT, max_size=3) | st.none() | st.integers(), truth=TEXT)
def test_every_metric_scores_any_answer(answer: Any, truth: str) -> None:
    for metric in METRICS.keys() - {"xml_norm_point_in_bbox"}:
        assert score(metric, answer, truth) == -1 or 0 <= score(metric, answer, truth) <= 1, metric


@given(reply=TEXT)
def test_every_parser_fills_each_field(reply: str) -> None:
    for parser in PARSERS:
        assert isinstance(fields_of(reply, parser, {"answer": "x"}), dict)


@given(items=st.lists(st.sampled_from(["a", "b", "cd", "e4"]), min_size=1, unique=True), data=st.data())
def test_sets_are_unordered_and_the_truth_earns_full_marks(items: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(items))
    for metric in ("set_equality", "jaccard_index", "set_precision", "str_set_equality_comma"):
        assert score(metric, ",  ".join(shuffled), str(items)) == 1
    for metric in ("sequence_equality", "longest_common_list_prefix_ratio"):
        assert score(metric, str(items), str(items)) == 1


@given(one=TEXT, other=TEXT)
def test_the_edit_distance_counts_a_transposition_once(one: str, other: str) -> None:
    assert edits(one, other) == edits(other, one)
    assert abs(len(one) - len(other)) <= edits(one, other) <= max(len(one), len(other))
    assert edits(one + "xy", one + "yx") == 1
    assert (edits(one, other) == 0) == (one == other)


@pytest.mark.parametrize(
    "text", ["-" * 5000 + "1", "[" * 150 + "]" * 150, "1" * (LONGEST + 1), "9" * 5000, "f()"]
)
def test_a_literal_is_bounded_and_no_code_is_run(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        literal(text)
    assert json_in("[" * 50_000) == []
    assert json_in("{" * 50_000) == {}


def test_fields_are_combined_as_the_task_specifies() -> None:
    two = question(
        {"a": "3", "b": "0"},
        metrics={"a": "exact_str_match", "b": "positive_int_match"},
        weights={"a": 1, "b": 3},
    )
    verify = VERIFIERS["mega_bench"].verify
    assert verify('{"a": "3", "b": "1"}', two).score == 0.25
    assert verify('{"a": "3", "b": "0"}', two).score == 1.0  # b has no weight
    assert aggregated({"a": 1.0, "b": 0.5, "c": -1.0}, "min", {}) == 0.5
    assert aggregated({"a": -1.0}, "mean", {"a": 1}) == 0.0


def test_a_question_is_deferred_if_one_metric_needs_the_official_evaluator() -> None:
    waits = question({"a": "x", "b": "y"}, metrics={"a": "exact_str_match", "b": "bleu"})
    assert scored_elsewhere(waits)
    with pytest.raises(DataError, match="scored elsewhere: bleu"):
        VERIFIERS["mega_bench"].verify('{"a": "x"}', waits)
    assert not scored_elsewhere(question({"a": "x"}, metrics={"a": "exact_str_match"}))
    assert not METRICS.keys() & OFFICIAL.keys()
    with pytest.raises(DataError, match="`metrics`"):
        scored_elsewhere(question({"a": "x"}, metrics={"a": "exact"}))
