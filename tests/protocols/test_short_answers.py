"""Short answers of search agents: extraction, comparison, and reading a judge's reply."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.judge.graders import GRADERS, read_attempted, read_extracted, read_mars
from vtune.protocols.short_answers import grade_exact, grade_f1, judged_by
from vtune.protocols.specimens import SPECIMENS
from vtune.verifiers import check_ground_truth
from vtune.verifiers.exact import squad
from vtune.verifiers.gradings import GRADINGS, last_answer

SAMPLE = SPECIMENS["mmsearch"][0]
"""Its answers are Gustave Eiffel or G. Eiffel."""

# reply -> (answer read by SenseNova-MARS's code, its F1 by MMSearch's rule, exact match by MMSearch-R1's)
ANSWERS: dict[str, tuple[str, float, float]] = {
    "<answer>Gustave Eiffel</answer>": ("Gustave Eiffel", 1, 1),
    "<answer> gustave  EIFFEL. </answer>": ("gustave  EIFFEL.", 1, 1),
    "<answer>the Gustave Eiffel!</answer>": ("the Gustave Eiffel!", 1, 1),
    "<answer>A Gustave, an Eiffel</answer>": ("A Gustave, an Eiffel", 1, 1),
    "<answer>G. Eiffel</answer>": ("G. Eiffel", 1, 1),
    "<answer>g eiffel</answer>": ("g eiffel", 1, 1),
    "<answer>Eiffel Gustave</answer>": ("Eiffel Gustave", 1, 0),
    "<answer>Eiffel</answer>": ("Eiffel", 2 / 3, 0),
    "<answer>Gustave Eiffel of Dijon</answer>": ("Gustave Eiffel of Dijon", 2 / 3, 0),
    "<answer>Eiffel Eiffel</answer>": ("Eiffel Eiffel", 1 / 2, 0),
    "<answer>Gustave-Eiffel</answer>": ("Gustave-Eiffel", 0, 0),
    "<answer>Napoleon</answer>": ("Napoleon", 0, 0),
    "<answer>a</answer>": ("a", 0, 0),
    "<answer>the</answer>": ("the", 0, 0),
    "<answer></answer>": ("", 0, 0),
    "<answer>...</answer>": ("...", 0, 0),
    "<answer>Napoleon</answer><answer>Eiffel</answer>": ("Eiffel", 2 / 3, 0),
    "<answer>Eiffel</answer><answer>Napoleon</answer>": ("Napoleon", 0, 0),
    "<answer>Eiffel</answer> or not": ("Eiffel", 2 / 3, 0),
    "<answer>Eiffel": ("<answer>Eiffel", 0, 0),
    "Eiffel</answer>": ("Eiffel</answer>", 0, 0),
    "</answer><answer>Eiffel": ("</answer><answer>Eiffel", 0, 0),
    "Gustave Eiffel": ("Gustave Eiffel", 1, 1),
    "It is Gustave Eiffel": ("It is Gustave Eiffel", 2 / 3, 0),
    "<think>Napoleon?</think>Eiffel": ("Eiffel", 2 / 3, 0),
    "<thinking>Napoleon?</thinking><answer>Eiffel</answer>": ("Eiffel", 2 / 3, 0),
    "<thinking><answer>Napoleon</answer></thinking>Eiffel": ("Eiffel", 2 / 3, 0),
    "<answer>Eiffel</answer></think>": ("", 0, 0),
    "Eiffel<|im_end|>Napoleon": ("Eiffel", 2 / 3, 0),
    "Napoleon<|im_start|>assistantEiffel": ("Eiffel", 2 / 3, 0),
    "\\boxed{Gustave Eiffel}": ("\\boxed{Gustave Eiffel}", 1 / 2, 0),
    "": ("", 0, 0),
    " \n ": ("", 0, 0),
    "<answer>Ünïcode Eiffel</answer>": ("Ünïcode Eiffel", 1 / 2, 0),
    "<ANSWER>Eiffel</ANSWER>": ("<ANSWER>Eiffel</ANSWER>", 0, 0),
}


@pytest.mark.parametrize("reply", ANSWERS)
def test_the_last_answer_is_read_and_compared_like_upstream(reply: str) -> None:
    assert len(ANSWERS) >= 30
    read, f1, exact = ANSWERS[reply]
    assert last_answer(reply) == read
    assert grade_f1(read, SAMPLE).score == pytest.approx(f1)
    assert grade_exact(read, SAMPLE).score == exact
    assert grade_f1(read, SAMPLE).unreadable == grade_exact(read, SAMPLE).unreadable == (squad(read) == "")


# a judge's reply -> its verdict by the rules of MARS, of SimpleQA's classes, and of Humanity's Last Exam
JUDGES: dict[str, tuple[str | None, str | None, str | None]] = {
    "<judge>Yes</judge>": ("right", None, None),
    "<judge> no </judge><reason>A</reason>": ("wrong", "right", None),
    "<judge>YES</judge><judge>yes</judge>": ("right", None, None),
    "<judge>YES</judge><judge>No</judge>": (None, None, None),
    "<judge>\nYes\n</judge>": ("right", None, None),
    "<judge>Yes/No</judge>": (None, None, None),
    "<judge>Maybe</judge>": (None, None, None),
    "<judge>Yes": (None, None, None),
    "Yes": (None, None, None),
    "A": (None, "right", None),
    "B": (None, "wrong", None),
    "C": (None, "not_attempted", None),
    "**B**": (None, "wrong", None),
    "(C)": (None, "not_attempted", None),
    "A.": (None, "right", None),
    "a": (None, None, None),
    "A or B": (None, None, None),
    "AB": (None, None, None),
    "CORRECT": (None, None, None),
    "<think>A? no.</think>B": (None, "wrong", None),
    "Grade: B": (None, "wrong", None),
    "B B B": (None, "wrong", None),
    "D": (None, None, None),
    "<think>So <judge>Yes</judge>, or A.\ncorrect: yes": (None, None, None),
    "A different city is named, so the answer is incorrect.": (None, None, None),
    "A reference says Paris; the model says Lyon.": (None, None, None),
    "The answer names vitamin C, which contradicts the reference.": (None, None, None),
    "A: a different spelling of the same name.": (None, "right", None),
    "Class A": (None, "right", None),
    "Option A is different.": (None, None, None),
    "B, a contradiction.": (None, "wrong", None),
    "The grade is C.": (None, "not_attempted", None),
    "I would grade this B.": (None, "wrong", None),
    "\\boxed{B}": (None, "wrong", None),
    "<think>I write <judge>Yes</judge> or No.</think><judge>No</judge>": ("wrong", None, None),
    "<think>correct: yes</think>\ncorrect: no": (None, None, "wrong"),
    "<think>correct: yes</think>\nI cannot say.": (None, None, None),
    "correct: yes": (None, None, "right"),
    "correct: no\nconfidence: 100": (None, None, "wrong"),
    "correct: no\ncorrect: no": (None, None, "wrong"),
    "correct: yes\ncorrect: no": (None, None, None),
    "**correct:** yes": (None, None, "right"),
    "Correct: Yes, it is": (None, None, "right"),
    "reasoning: correct: yes\ncorrect: no": (None, None, "wrong"),
    "correct: maybe": (None, None, None),
    "incorrect: yes": (None, None, None),
    "it is correct: yes": (None, None, None),
    "correct: yesterday": (None, None, None),
    "correct:\nno": (None, None, "wrong"),
    "": (None, None, None),
}


@pytest.mark.parametrize("reply", JUDGES)
def test_a_judges_reply_is_read_or_asked_for_again_and_never_guessed(reply: str) -> None:
    assert len(JUDGES) >= 30
    assert (read_mars(reply), read_attempted(reply), read_extracted(reply)) == JUDGES[reply]


def test_every_grading_names_the_model_that_it_asks() -> None:
    assert GRADINGS.keys() == GRADERS.keys()
    assert len(GRADINGS) == 4


def test_exact_comparison_options_do_not_affect_a_model() -> None:
    own = replace(SAMPLE, verifier="exact", verifier_parm={**SAMPLE.verifier_parm, "match": "squad"})
    prepared = judged_by("mars").prepared(own)
    check_ground_truth(prepared)
    assert (prepared.verifier, prepared.verifier_parm["aliases"]) == ("judge", ["G. Eiffel"])


@given(st.text())
def test_any_reply_is_read_and_scored(text: str) -> None:
    for grade in (grade_f1(last_answer(text), SAMPLE), grade_exact(text, SAMPLE)):
        assert 0.0 <= grade.score <= 1.0
        assert not (grade.unreadable and grade.score)
    assert squad(squad(text)) == squad(text) or " a " in f" {squad(text)} "
    for read in (read_mars, read_attempted, read_extracted):
        assert read(text) in (None, "right", "wrong", "not_attempted")
