r"""How the protocols of MathVista, MathVerse, MathVision and CharXiv read awkward replies without a model.

If the reference lists executed traps, the verdict is the one measured there. Answer extraction for MathVision
was compared with upstream's functions on 60,000 strings, and correctness with the 48,640 verdicts that its
authors publish.
"""

import ast
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from vtune.protocols import PROTOCOLS
from vtune.protocols.mathvision import answer_of, equal, kit_equal
from vtune.protocols.mathvista import normal
from vtune.protocols.protocol import Grade, put
from vtune.protocols.readers import read_extracted, read_graded
from vtune.protocols.specimens import SPECIMENS
from vtune.schema.sample import Sample
from vtune.verifiers.latex import latex2sympy_value, value_of
from vtune.verifiers.ocr import edits

NO = None
VISTA = replace(SPECIMENS["mathvista"][0], choices=("red", "green", "blue"), ground_truth="B", answer="green")


def grade(protocol: str, kind: str, reply: str, sample: Sample) -> Grade:
    rule = PROTOCOLS[protocol].rule(kind)
    assert rule is not None
    return rule.grade(reply, sample)


def numeric(kind: str, truth: str, precision: int | None = None) -> Sample:
    extra = {**VISTA.extra, "answer_type": kind, "precision": precision}
    return replace(VISTA, choices=(), ground_truth=truth, answer=truth, extra=extra)


# reply -> option read from A red, B green, C blue by the authors, their fallback score, VLMEvalKit's reading
OPTIONS: dict[str, tuple[str | None, float, str | None]] = {
    "B": ("B", 1.0, "B"), "(B)": ("B", 1.0, "B"), "green": ("B", 1.0, "B"), "Green": (NO, 1.0, "B"),
    "(b)": ("B", 1.0, NO), "b": (NO, 0.0, NO), "The answer is (B) green": ("B", 1.0, "B"),
    "(A) or (B)": ("A", 0.0, NO), "B.": (NO, 0.0, "B"), "B) green": (NO, 1.0, "B"), "\\boxed{B}": (NO, 0.0, "B"),
    "I think it is green": (NO, 1.0, "B"), "gren": (NO, 1.0, NO), "": (NO, 0.0, NO), "  ": (NO, 0.0, NO),
    "A red car": (NO, 0.0, "A"), "option B": (NO, 1.0, "B"), "**B**": (NO, 0.0, "B"), "Z": (NO, 0.0, NO),
    "<answer>B</answer>": (NO, 0.0, NO), "none": (NO, 0.0, NO), "D": (NO, 0.0, NO), "(D)": (NO, 0.0, NO),
    "red or green": (NO, 1.0, NO), "The correct answer is B": (NO, 1.0, "B"), "(B": (NO, 0.0, "B"),
    "B, because it is long and narrow there": (NO, 1.0, NO), "BLUE": (NO, 0.0, "C"), "blue.": (NO, 0.0, "C"),
    "It is (x), so (B)": (NO, 0.0, "B"), "answer: green!": (NO, 1.0, "B"), "Cannot determine the answer": (NO, 1.0, NO),
}  # fmt: skip


def test_mathvista_options_are_read_like_upstream() -> None:
    assert len(OPTIONS) >= 30
    for reply, (official, fallback, kit) in OPTIONS.items():
        found = grade("official", "mathvista", reply, VISTA)
        assert (found.read, found.fallback) == (official, fallback), reply
        assert found.score == float(official == "B"), reply
        assert grade("lmms-eval", "mathvista", reply, VISTA) == found
        assert grade("vlmevalkit", "mathvista", reply, VISTA).read == kit, reply


def test_the_nearest_option_is_the_letter_in_parentheses() -> None:
    no = replace(VISTA, choices=("Yes", "No"), ground_truth="B", answer="No")
    found = grade("official", "mathvista", "(C) 8", no)
    assert (found.score, found.read, found.fallback) == (0.0, None, 1.0)
    assert grade("official", "mathvista", "Yes, 8", no).fallback == 0.0


# form, precision, truth, reply -> right according to the authors, to VLMEvalKit; None: unreadable
NUMBERS: list[tuple[str, int | None, str, str, bool | None, bool | None]] = [
    ("integer", None, "3", "3", True, True), ("integer", None, "3", "3.0", True, NO),
    ("integer", None, "3", " 3 ", True, True), ("integer", None, "3", "three", NO, NO),
    ("integer", None, "3", "3 signs", NO, NO), ("integer", None, "3", "-3", False, False),
    ("integer", None, "3", "03", True, True), ("integer", None, "3", "3.7", True, NO),
    ("integer", None, "3", "1_0", False, False), ("integer", None, "3", "+3", True, True),
    ("integer", None, "3", "nan", NO, NO), ("integer", None, "3", "inf", NO, NO),
    ("integer", None, "3", "3,0", NO, NO), ("integer", None, "3", "3e0", True, NO),
    ("integer", None, "3", "{3}", NO, NO), ("integer", None, "3", "The answer is 3.", NO, NO),
    ("float", 1, "1.5", "1.5", True, True), ("float", 1, "1.5", "1.50", True, True),
    ("float", 1, "1.5", "1.46", True, False), ("float", 1, "1.5", "1.54", True, False),
    ("float", 1, "1.5", "1.56", False, False), ("float", 1, "1.5", "15e-1", True, True),
    ("float", 1, "1.5", "1,5", NO, NO), ("float", 1, "1.5", "1.5 m", NO, NO),
    ("float", 1, "1.5", "nan", False, False), ("float", 1, "1.5", "2", False, False),
    ("float", 1, "1.5", "about 1.5", NO, NO), ("float", 1, "1.5", "\\boxed{1.5}", NO, NO),
    ("float", 2, "1.50", "1.5", False, True), ("float", None, "1.5", "1.5", NO, True),
    ("list", None, "[2007, 2008]", "[2007, 2008]", True, NO), ("list", None, "[2007, 2008]", "[2007,2008]", False, NO),
    ("list", None, "[2007, 2008]", "2007 and 2008", NO, NO), ("list", None, "[2007, 2008]", "", NO, NO),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "precision", "truth", "reply", "official", "kit"), NUMBERS)
def test_mathvista_numbers_are_read_by_type_and_precision(
    kind: str, precision: int | None, truth: str, reply: str, official: bool | None, kit: bool | None
) -> None:
    sample = numeric(kind, truth, precision)
    for protocol, wanted in (("official", official), ("vlmevalkit", kit)):
        found = grade(protocol, "mathvista", reply, sample)
        assert (None if found.unreadable else found.score == 1.0) == wanted, protocol


# reply -> right for \frac{1}{2} according to the authors, to VLMEvalKit (None: only a model could read it)
OPEN: dict[str, tuple[bool, bool | None]] = {
    "\\boxed{\\frac{1}{2}}": (True, True), "\\boxed{0.5}": (True, True), "0.5": (True, True), "1/2": (True, True),
    "The answer is 1/2.": (True, NO), "so x = 0.5": (True, NO), "\\boxed{1} then \\boxed{0.5}": (True, NO),
    "\\boxed{0.504}": (True, False), "0.504": (True, False), "\\boxed{\\dfrac12}": (False, NO),
    "\\boxed{\\frac{2}{4}}": (True, True), "\\boxed{50\\%}": (False, NO), "$0.5$": (True, True), "half": (False, NO),
    "": (False, NO), "\\boxed{}": (False, NO), "\\boxed{0.5": (False, NO), "0.5 km": (True, NO),
    "\\boxed{0.5\\text{ km}}": (True, NO), "\\boxed{0.5\\text{ cm}}": (False, NO), "the final answer is 0.5. Done": (True, NO),
    "The answer is: 0.5": (True, NO), "\\boxed{2^{-1}}": (True, True), "\\boxed{\\sqrt{0.25}}": (True, True),
    "__import__('os')": (False, NO), "\\boxed{9**9**9}": (False, NO), "9**9**9**9": (False, NO), "nan": (False, NO),
    "\\boxed{x=0.5}": (True, NO), "approximately 0.5": (False, NO), "0.5000001": (True, True), "0.50001": (True, False),
    "answer: 0.5": (False, NO), "\\boxed{1\\div 2}": (True, True), ".5": (True, True), "0,5": (False, NO), "1e400": (False, NO),
    "2": (False, False), "1/0": (False, NO),
}  # fmt: skip


def test_open_mathvision_answers_are_evaluated_without_running_code() -> None:
    assert len(OPEN) >= 30
    sample = replace(SPECIMENS["mathvision"][0], ground_truth="\\frac{1}{2}", answer="\\frac{1}{2}")
    for reply, (boxed, kit) in OPEN.items():
        assert grade("official", "mathvision", reply, sample).score == float(boxed), reply
        found = grade("vlmevalkit", "mathvision", reply, sample)
        assert (None if found.unreadable else found.score == 1.0) == kit, reply


# reply -> right for option B (text 4) according to the authors; the letter read by VLMEvalKit
CHOSEN: dict[str, tuple[bool, str | None]] = {
    "B": (True, "B"), "\\boxed{B}": (True, "B"), "\\boxed{4}": (True, "B"), "4": (True, "B"), "(B)": (True, "B"),
    "The answer is (B).": (True, "B"), "So it is B.": (True, "B"), "B\nbecause": (True, "B"), "(B) B\nx": (True, "B"),
    "\\boxed{(B)}": (True, "B"), "\\boxed{\\text{B}}": (True, "B"), "\\boxed{b}": (True, NO), "C": (False, "C"),
    "\\boxed{A} or \\boxed{B}": (True, NO), "the correct answer is B. Because": (True, "B"), "It is 4": (True, "B"),
    "is 4.": (True, "B"), "E": (False, "E"), "\\boxed{4.0}": (True, NO), "\\boxed{2^2}": (True, NO), "none": (False, NO),
    "": (False, NO), "F": (False, NO), "**B**": (False, "B"), "Z": (False, NO), "Answer: B": (False, "B"),
    "\\boxed{B. 4}": (False, "B"), "I choose B": (False, "B"), "A dog sits on 4": (False, NO), "8": (False, "C"),
    "\\boxed{\\mathbf{B}}": (False, "B"),
}  # fmt: skip


def test_mathvision_options_count_by_letter_or_text() -> None:
    assert len(CHOSEN) >= 30
    five = ("2", "4", "8", "6", "5")
    sample = replace(SPECIMENS["mathvision"][0], choices=five, ground_truth="B", answer="4")
    for reply, (boxed, kit) in CHOSEN.items():
        assert grade("lmms-eval", "mathvision", reply, sample).score == float(boxed), reply
        assert grade("vlmevalkit", "mathvision", reply, sample).read == kit, reply


# published truth, the reply's answer -> right according to the authors, who use latex2sympy2
PUBLISHED: list[tuple[str, str, bool]] = [
    ("$\\frac{1}{2}$", "\\boxed{\\frac{1}{2}}", True), ("$15$", "\\boxed{15}", True), ("$15$", "\\boxed{16}", False),
    ("$9(\\pi-2)$", "\\boxed{9(\\pi-2)}", True), ("$\\displaystyle \\frac{3}{4}$", "\\boxed{0.75}", True),
    ("$3: 2$", "\\boxed{\\frac{3}{2}}", True), ("1", "\\boxed{1:1}", True), ("$6:\\pi$", "\\boxed{\\frac{6}{\\pi}}", True),
    ("$1: 4: 9$", "\\boxed{1:4:9}", True), ("7 : 30", "\\boxed{7:30}", True), ("$2:3$", "\\boxed{3:2}", False),
    ("$\\frac{3}{8}$", "\\frac{3}{8}} of it", True), ("$\\frac{3}{8}$", "\\boxed{\\frac{3}{8}. So \\fbox{D}}", True),
    ("5", "\\boxed{5. So it is}", True), ("5", "\\boxed{5 so it is}", False), ("5", "\\boxed{5, 6}", False),
    ("$\\frac{3^{1008}-1}{3^{1009}}$", "\\boxed{\\frac{1}{3}}", True), ("$\\frac{7^3}{2^{12} 13^2}$", "0", True),
    ("$\\boxed{\\frac{3}{4}}$", "\\boxed{\\frac{3}{4}}", False),
    ("\\infty", "\\boxed{∞}", True), ("\\infty", "\\boxed{+\\infty}", True), ("(2,\\infty)", "\\boxed{(2, +\\infty)}", True),
    ("\\frac12", "\\boxed{\\frac12}", True), ("\\frac{1}{2}", "\\boxed{\\frac12}", False), ("d{saturday}", "\\boxed{\\text{(D)}\\ \\text{saturday}}", True),
]  # fmt: skip


@pytest.mark.parametrize(("truth", "reply", "right"), PUBLISHED)
def test_mathvision_truths_are_read_like_latex2sympy(truth: str, reply: str, right: bool) -> None:
    five = ("2", "3", "4", truth, "8")
    sample = replace(SPECIMENS["mathvision"][0], choices=five, ground_truth="D", answer=truth)
    for protocol in ("official", "lmms-eval"):
        assert grade(protocol, "mathvision", reply, sample).score == float(right)
        assert grade(protocol, "mathvision", "\\boxed{D}", sample).score == 1.0


def test_vlmevalkit_reads_the_truth_without_dollars_and_ignores_the_rest() -> None:
    assert kit_equal("4 \\pi", "$4 \\pi$")
    assert kit_equal("$4\\pi$", "4 \\pi")
    assert kit_equal("3:2", "$\\displaystyle 1.5$")
    assert kit_equal("3/4", "$\\boxed{\\frac{3}{4}}$")
    assert kit_equal("90/23", "$\\frac{90}{23}^{\\circ}$")
    assert not kit_equal("4. So it is", "$4$")
    sample = replace(SPECIMENS["mathvision"][0], ground_truth="$4 \\pi$", answer="$4 \\pi$")
    assert grade("vlmevalkit", "mathvision", "$4 \\pi$", sample).score == 1.0
    assert not grade("vlmevalkit", "mathvision", "$5 \\pi$", sample).unreadable


@pytest.mark.parametrize(
    "text", ["{" * 300, "{" * 100 + "-" * 90, "(" * 101 + "1", "1+" * 150, "2^" * 90 + "2", "1e9999999999999", "0^0"]
)  # fmt: skip
def test_an_expression_too_deep_long_or_large_has_no_value(text: str) -> None:
    assert value_of(text) is None
    assert latex2sympy_value(text, whole=False) is None


@pytest.mark.parametrize(
    "text", ["1 " * 200, "\\boxed{" + "1\t" * 200 + "}", "5" + " " * 300 + "\\pi", " "]
)  # fmt: skip
def test_a_reply_cut_at_a_space_has_no_value(text: str) -> None:
    assert value_of(text) is None
    for name in ("official", "lmms-eval", "vlmevalkit"):
        assert grade(name, "mathvision", text, SPECIMENS["mathvision"][0]).score == 0.0


def test_tuples_are_compared_number_by_number() -> None:
    truth = "(3, 0.5)"
    right = ("(3,1/2)", "(3, 0.5)", "(3,0.501)", "( 3 , \\frac{1}{2})")
    wrong = ("(3,0.4)", "(3)", "[3,0.5]", "(a,1)", "3,0.5", "(3,0.5,1)", "()", "(,)")
    assert all(equal(truth, found) for found in right)
    assert not any(equal(truth, found) for found in wrong)
    assert equal("(-\\infty,2)", "(-\\infty,2.0)")


# reply -> right without a model: MathVerse (truth "12 cm^2"), CharXiv (truth "Not Applicable")
ALONE: dict[str, tuple[bool, bool]] = {
    "12 cm^2": (True, False), " 12 cm^2 ": (True, False), "12": (False, False), "12 CM^2": (False, False),
    "12 cm^2.": (False, False), "Not Applicable": (False, True), "not applicable": (False, True),
    "Not Applicable.": (False, True), "Not  applicable": (False, True), "N/A": (False, False), "": (False, False),
    " ": (False, False), "The area is 12 cm^2": (False, False), "It is not applicable": (False, False), "0": (False, False),
    "None": (False, False), "12cm^2": (False, False), "\\boxed{12 cm^2}": (False, False), "12 cm²": (False, False),
    "0.0012 m^2": (False, False), "Not": (False, False), "Applicable": (False, False), "NOT APPLICABLE": (False, True),
    "**Not Applicable**": (False, False), "Not Applicable!": (False, False), "twelve": (False, False), ".": (False, False),
    "12 cm^2\n": (True, False), "\nNot Applicable": (False, True), "no title": (False, False), "Not_Applicable": (False, False),
}  # fmt: skip


def test_without_a_model_equal_text_is_right_and_nothing_is_wrong() -> None:
    assert len(ALONE) >= 30
    verse = replace(SPECIMENS["mathverse"][0], ground_truth="12 cm^2", answer="12 cm^2")
    chart = replace(SPECIMENS["charxiv_descriptive"][0], ground_truth="Not Applicable")
    for reply, rights in ALONE.items():
        for kind, sample, right in zip(
            ("mathverse", "charxiv_descriptive"), (verse, chart), rights, strict=True
        ):
            found = grade("vlmevalkit", kind, reply, sample)
            assert (found.score == 1.0, found.unreadable) == (right, not right), (kind, reply)


# output of a model -> (answer, right) in CharXiv's JSON
GRADED: dict[str, tuple[str, bool] | None] = {
    '{"extracted_answer": "b", "score": 1}': ("b", True), '{"extracted_answer": "b", "score": 0}': ("b", False),
    '{"extract_answer": "b", "score": 1}': ("b", True), '{"extract_answer_T1": 4, "score_T1": 1}': ("4", True),
    '```json\n{"extracted_answer": "b", "score": 1}\n```': ("b", True), '{"extracted_answer": "", "score": 0}': ("", False),
    '<think>{"score": 0}</think>{"extracted_answer": "b", "score": 1}': ("b", True),
    'Sure: {"extracted_answer": "b", "score": 1}.': ("b", True), '{"extracted_answer": 1.0, "score": 1.0}': ("1.0", True),
    '{"extracted_answer": "b", "score": 2}': NO, '{"extracted_answer": "b", "score": "1"}': NO, '{"score": 1}': NO,
    '{"extracted_answer": "b", "score": true}': NO, '{"extracted_answer": "b", "score": -1}': NO, '{"extracted_answer": "b"}': NO,
    '{"extracted_answer": "b", "score": 0.5}': NO, '{"extracted_answer": null, "score": 1}': NO, "1": NO, "": NO, "{": NO, "}{": NO,
    "score: 1": NO, "[1]": NO, '{"extracted_answer": "b" "score": 1}': NO, '{"extracted_answer": "b", "score": NaN}': NO,
    '{"extracted_answer": "b", "score": [1]}': NO, '{"extracted_answer": ["a"], "score": 1}': ("['a']", True),
    '{"a": {"extracted_answer": "b", "score": 1}}': NO, "{" * 5000 + "}": NO, '{"score": 1, "score_T1": 0}': NO,
    '{"extracted_answer": "} {", "score": 1}': ("} {", True), '{"extracted_answer": null, "score": 0}': ("", False),
}  # fmt: skip


def test_a_json_grade_is_read_or_rejected() -> None:
    assert len(GRADED) >= 30
    assert {reply: read_graded(reply) for reply in GRADED} == GRADED


# output of a model -> the extracted answer
EXTRACTED: dict[str, str | None] = {
    "B": "B", " B ": "B", "NONE": "", "none": "", "None.": "", '"B"': "B", "`B`": "B", "<think>A?</think> B": "B", '"': '"',
    "12 cm": "12 cm", "[2007, 2008]": "[2007, 2008]", "x" * 500: "x" * 500, "x" * 501: NO, "": NO, '""': "", "nonempty": "nonempty",
    "```B```": "B", "NONE of them": "NONE of them", "none..": "", "N/A": "N/A", "3.0": "3.0", "'B'": "'B'", "B\n": "B",
    '"NONE"': "", "` B `": "B", "``": NO, "\\boxed{B}": "\\boxed{B}", "</think>": NO, "<think>B": None,
    "<think>B</think>": NO, "<think>a</think><think>b</think>C": "C", "B, C": "B, C", "答案": "答案", "N O N E": "N O N E",
}  # fmt: skip


def test_an_extracted_answer_must_be_short() -> None:
    assert len(EXTRACTED) >= 30
    assert {reply: read_extracted(reply) for reply in EXTRACTED} == EXTRACTED


VALUES: dict[str, float | None] = {
    "1": 1.0, "-3": -3.0, "\\frac{1}{2}": 0.5, "2\\sqrt{9}": 6.0, "3+4*2": 11.0, "(1+2)^2": 9.0, "1e5": 1e5, "-2^2": -4.0, "2^{-1}": 0.5,
    "2**3": 8.0, "\\sqrt[3]{8}": 2.0, "8/4/2": 1.0, "3(4)": 12.0, "2^3^2": 512.0, ".5": 0.5, "5.": 5.0, "3 4": NO, "a": NO, "": NO,
    "\\frac12": NO, "10^400": NO, "1/0": NO, "((((": NO, ")": NO, "(1]": NO, "\\sqrt{-1}": NO, "(-8)^(1/3)": NO, "x=1": NO, "\\pi r": NO,
    "1" * 200: float("1" * 200), "1" * 201: NO, "(" * 99 + "1" + ")" * 99: 1.0, "-" * 150 + "1": 1.0, "9^9^9^9": NO, "\\foo": NO, "+": NO,
    "1,000": 1000.0, "12,345.": 12345.0, "-1,234.5": -1234.5, "\\frac{1,000,000}{2}": 5e5, "(1,000)": NO, "[1,000]": NO,
    "2^{2} 13": 52.0, "3^{700}/3^{699}": 3.0, "5.x": NO, "$5$": NO, "3:2": NO, "5}": NO,
    "0,123": NO, "1,00": NO, "1,0000": NO, "1000,000": NO, "1, 000": NO, "1,000,5": NO,
}  # fmt: skip


def test_values_are_computed_without_running_code() -> None:
    assert len(VALUES) >= 30
    assert {text: value_of(text) for text in VALUES} == VALUES


@pytest.mark.parametrize("said", ["\\boxed{1,000}", "The answer is 1,000.", "1,000"])
def test_commas_between_thousands_change_no_number(said: str) -> None:
    assert equal("1000", answer_of(said))
    assert kit_equal("1,000", "1000")
    assert not equal("1000", "(1,000)")


MATHS = st.text(st.sampled_from("0123456789.+-*/^(){}[] \\abcdeinfrsqtpox,=$%"), max_size=80)


@given(MATHS)
def test_any_text_has_a_value_or_none(text: str) -> None:
    found = value_of(text)
    assert found is None or (found == found and abs(found) != float("inf"))
    assert isinstance(answer_of(text), str)
    for one in ("0.5", "(1, 2)", "b"):
        assert equal(one, text) == equal(one, text)
        assert kit_equal(text, one) in (True, False)


@given(st.text(max_size=30), st.text(max_size=30))
def test_the_edit_distance_is_a_metric(one: str, other: str) -> None:
    assert edits(one, other) == edits(other, one)
    assert (edits(one, other) == 0) == (one == other)
    assert abs(len(one) - len(other)) <= edits(one, other) <= max(len(one), len(other))


@given(st.text(max_size=60), st.sampled_from([VISTA, numeric("integer", "3"), numeric("float", "1.5", 1)]))
def test_a_normalised_option_answer_is_one_of_the_options(text: str, sample: Sample) -> None:
    found = normal(text, sample)
    assert found is None or not sample.choices or found in sample.choices


@given(st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_model_output_is_read_or_rejected_without_an_error(value: Any) -> None:
    text = value if isinstance(value, str) else f'{{"extracted_answer": "x", "score": {value}}}'
    found = read_graded(text)
    assert found is None or isinstance(found[1], bool)
    assert read_extracted(text) is None or len(read_extracted(text) or "") <= 500


ASKED: dict[tuple[str, str], str] = {
    ("official", "mathvista"): "<image>What is it?\nChoices:\n(A) red\n(B) green\n(C) blue\n(D) yellow",
    ("vlmevalkit", "mathvista"): "<image>What is it?\nChoices:\n(A) red\n(B) green\n(C) blue\n(D) yellow",
    ("lmms-eval", "mathvista"): "<image>What is it?\nA. red\nB. green\nC. blue\nD. yellow\n"
    "Answer with the option's letter from the given choices directly.",
    ("official", "mathverse"): "<image>Think first. What is it?",
    ("lmms-eval", "mathverse"): "<image>What is it?",
    ("vlmevalkit", "mathverse"): "<image>What is it?",
    ("lmms-eval", "mathvision"): '<image>Please solve the problem step by step and put your answer in one "\\boxed{}".'
    "What is it?",
    ("vlmevalkit", "mathvision"): "<image>What is it?",
    ("official", "charxiv_reasoning"): "<image>How many?",
    ("vlmevalkit", "charxiv_descriptive"): "<image>How many?",
    ("official", "charxiv_descriptive"): "<image>How many?",
}  # fmt: skip


@pytest.mark.parametrize(("protocol", "kind"), ASKED)
def test_the_prompt_matches_the_protocol_byte_for_byte(protocol: str, kind: str) -> None:
    rule = PROTOCOLS[protocol].rule(kind)
    assert rule is not None
    assert put(SPECIMENS[kind][0], rule).prompt[-1].content == ASKED[protocol, kind]


@pytest.mark.parametrize(
    ("kind", "precision", "unit", "end"),
    [
        ("integer", None, "", "What is it?\nAnswer the question using a single integer number."),
        ("float", 1, "m", "What is it? (Unit: m)\nAnswer the question using a single floating-point number with one decimal place."),
        ("float", 2, "", "What is it?\nAnswer the question using a single floating-point number with two decimal places."),
        ("list", None, "", "What is it?\nAnswer the question using a Python list."),
        ("text", None, "", "What is it?"),
    ],
)  # fmt: skip
def test_lmms_eval_asks_for_the_answer_format(kind: str, precision: int | None, unit: str, end: str) -> None:
    sample = numeric(kind, "3", precision)
    rule = PROTOCOLS["lmms-eval"].rule("mathvista")
    assert rule is not None
    assert rule.ask is not None
    assert rule.ask("", replace(sample, extra={**sample.extra, "unit": unit})) == end


def test_mathvision_options_follow_the_question_without_a_space() -> None:
    rule = PROTOCOLS["official"].rule("mathvision")
    assert rule is not None
    assert rule.ask is not None
    sample = replace(SPECIMENS["mathvision"][0], choices=("2", "4"))
    assert rule.ask("", sample) == (
        'Please solve the problem step by step and put your answer in one "\\boxed{}".What is it?\n'
        "Choices: A. 2\nB. 4\nAnswer the question with the option's letter from the given choices directly."
    )


def test_vlmevalkit_uses_the_query_for_vision_only_mathverse_problems() -> None:
    rule = PROTOCOLS["vlmevalkit"].rule("mathverse")
    assert rule is not None
    assert rule.ask is not None
    sample = SPECIMENS["mathverse"][0]
    assert (
        rule.ask("", replace(sample, extra={**sample.extra, "question": " ", "query": "See it."}))
        == "See it."
    )


def played(protocol: str, kind: str, text: str, sample: Sample, *answers: Any) -> tuple[Grade, list[str]]:
    """(grade, prompts to the model) if it gives these answers."""
    rule = PROTOCOLS[protocol].rule(kind)
    assert rule is not None
    assert rule.judge is not None
    judging, asked, left = rule.judge(text, sample), [], list(answers)
    try:
        ask = next(judging)
        while True:
            asked.append(ask.prompt.text)
            ask = judging.send(left.pop(0))
    except StopIteration as ended:
        assert not left
        return ended.value, asked


def test_a_model_is_asked_only_if_the_rules_find_nothing() -> None:
    right, asked = played("official", "mathvista", "green", VISTA)
    assert (right.score, asked) == (1.0, [])
    right, asked = played("official", "mathvista", "The second.", VISTA, "B")
    assert (right.score, right.read, len(asked)) == (1.0, "B", 1)
    assert asked[0].endswith('Reply: "The second."')
    nearest, _ = played("official", "mathvista", "A sort of greenish", VISTA, "greenish")
    assert (nearest.score, nearest.read, nearest.fallback) == (0.0, None, 1.0)
    nothing, _ = played("vlmevalkit", "mathvista", "I cannot say", VISTA, "")
    assert (nothing.score, nothing.unreadable) == (0.0, True)
    refused, asked = played("vlmevalkit", "mathvista", "Cannot determine the answer", VISTA)
    assert (refused.unreadable, asked) == (True, [])
    float_read, _ = played("vlmevalkit", "mathvista", "One and a half", numeric("float", "1.5", 1), "1.46")
    assert (float_read.score, float_read.read) == (0.0, "1.46")
    never, _ = played("vlmevalkit", "mathvista", "[1, 2]", numeric("list", "[1, 2]"), "[1, 2]")
    assert (never.score, never.read) == (0.0, "[1, 2]")
    for empty in ("mathvista", "mathverse", "mathvision", "charxiv_reasoning"):
        grade, asked = played("vlmevalkit", empty, " ", SPECIMENS[empty][0])
        assert (grade.score, grade.unreadable, asked) == (0.0, True, [])


def test_mathverse_is_extracted_then_compared_unless_the_text_is_equal() -> None:
    sample = SPECIMENS["mathverse"][0]
    same, asked = played("official", "mathverse", "It is 3", sample, "3")
    assert (same.score, len(asked)) == (1.0, 1)
    wrong, asked = played("official", "mathverse", "It is 3 m", sample, "3 m", False)
    assert (wrong.score, wrong.read, len(asked)) == (0.0, "3 m", 2)
    once, asked = played("lmms-eval", "mathverse", "It is 3 m", sample, True)
    assert (once.score, once.read, len(asked)) == (1.0, "It is 3 m", 1)


def test_charxiv_is_graded_with_the_query_from_its_data() -> None:
    sample = SPECIMENS["charxiv_reasoning"][0]
    right, asked = played("official", "charxiv_reasoning", "three {PREDICTION}", sample, ("3", True))
    assert (right.score, right.read) == (1.0, "3")
    assert asked == ["* Ground Truth: 3\n* Response: three {PREDICTION}"]


def test_no_protocol_runs_code_or_chooses_at_random() -> None:
    files = sorted((ROOT / "vtune/protocols").glob("*.py"))
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), file
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "")}
                assert not names & {"random", "secrets", "sympy", "subprocess", "os"}, file
