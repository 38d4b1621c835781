"""The smaller filters, and what all filters guarantee."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.curate.build import item, sample
from tests.schema.records import TRAJECTORY
from vtune.curate.balance import Balance, overfull
from vtune.curate.filters import FILTERS
from vtune.curate.item import Item, asked_key, concerns, judged_key
from vtune.curate.judging import ExternalKnowledge, LabelCheck
from vtune.curate.language import English, foreign
from vtune.curate.mix import copy_of, interleaved
from vtune.curate.traces import CompleteTraces, ToolRounds, broken, rounds_outside
from vtune.curate.verifiable import MathVerifiable, Verifiable, no_expression, unverifiable
from vtune.runs.curate.labels import PeopleLabels
from vtune.runs.curate.recipe import PassRate

ENGLISH = English(filter="english", rows="all")


def test_every_filter_has_a_function_or_asks_a_model_or_people() -> None:
    asking = {part.section for part in FILTERS.values() if part.how is None}
    assert asking == {ExternalKnowledge, LabelCheck, PassRate, PeopleLabels}
    only_traces = {name for name, part in FILTERS.items() if part.looks_at == ("traces",)}
    assert only_traces == {"tool_rounds", "complete_traces"}


def test_a_filter_applies_to_all_rows_or_to_named_sources_and_abilities() -> None:
    row = item(source="mm_math", ability="math")
    for rows, seen in (("all", True), (["math"], True), (["mm_math"], True), (["ocr"], False), ([], False)):
        assert concerns(English(filter="english", rows=rows), row) is seen  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "truth"),
    [
        ("图中写了什么？", "7"),
        ("What is written here?", "停车"),
        ("Was steht auf dem Schild neben der Tür?", "7"),
        ("Quel est le nom de ce magasin ?", "7"),
    ],
)
def test_another_language_or_script_is_dropped(question: str, truth: str) -> None:
    assert foreign(ENGLISH, item(question, truth))


@pytest.mark.parametrize(
    ("question", "truth"),
    [("What is written on the sign?", "STOP"), ("Find x.", "1"), ("Which café is it?", "Zoë")],
)
def test_english_with_a_borrowed_word_is_kept(question: str, truth: str) -> None:
    assert foreign(ENGLISH, item(question, truth)) is None


@pytest.mark.parametrize(
    "sign", ["5 \u2126", "3 k\u03a9", "7 \u00b5m", "7 \u03bcm", "2\u03c0", "\U0001d465", "\u2113"]
)
def test_symbols_of_units_and_formulas_are_not_another_script(sign: str) -> None:
    assert foreign(ENGLISH, item(f"Is the resistance in the picture {sign}?", "yes")) is None
    assert foreign(ENGLISH, item("What does the display show?", sign)) is None
    assert foreign(ENGLISH, item("What does the sign say?", "\u03a3\u03a4\u039f\u03a0"))


def test_a_row_that_no_reply_could_answer_is_dropped() -> None:
    own = Verifiable(filter="verifiable", rows="all", verifier=None)
    assert unverifiable(own, item(truth="B", choices=("x", "y"), verifier="choice")) is None
    assert "no single option" in (unverifiable(own, item(truth="Q", choices=("x",), verifier="choice")) or "")
    with pytest.raises(ValidationError, match="no verifier is called 'mth'"):
        Verifiable(filter="verifiable", rows="all", verifier="mth")
    as_math = Verifiable(filter="verifiable", rows="all", verifier="math")
    assert unverifiable(as_math, item(truth="1/2")) is None
    assert unverifiable(as_math, item(truth="about two or three"))


def test_math_verify_must_find_an_ocr_label_equal_to_itself() -> None:
    spec = MathVerifiable(filter="math_verifiable", rows="all")
    assert no_expression(spec, item(truth="STOP")) is None
    assert no_expression(spec, item(truth="12.50")) is None
    assert no_expression(spec, item(truth="}{"))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("1234")), max_size=60), st.floats(0.5, 3))
def test_only_groups_above_the_median_limit_are_reduced(entries: list[tuple[str, str]], times: float) -> None:
    spec = Balance(filter="balance", rows="all", by="ground_truth", times_median=times)
    gone = overfull(spec, entries, random.Random(0))
    before, left = Counter(entries), Counter(e for n, e in enumerate(entries) if n not in gone)
    for source in "ab":
        sizes = sorted(size for (name, _), size in before.items() if name == source)
        if sizes:
            room = max(1, int(sizes[(len(sizes) - 1) // 2] * times))
            assert all(left[key] == min(size, room) for key, size in before.items() if key[0] == source)


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 20), max_size=3), st.integers())
def test_interleaving_yields_every_row_once(sizes: dict[str, int], seed: int) -> None:
    order = list(interleaved(sizes, random.Random(seed)))
    assert Counter(order) == Counter({name: size for name, size in sizes.items() if size})


def test_sources_are_spread_evenly() -> None:
    order = "".join(interleaved({"a": 500, "b": 1500}, random.Random(0)))
    for start in range(0, 2000, 200):
        assert 25 <= order[start : start + 200].count("a") <= 75


def test_a_copy_has_a_separate_id_and_names_the_original() -> None:
    first = sample()
    assert copy_of(first, 0) is first
    second = copy_of(first, 1)
    assert second.id == "s/0~2"  # type: ignore[union-attr]
    assert second.extra == {"copy_of": "s/0"}  # type: ignore[union-attr]


def test_traces_are_kept_by_their_number_of_calls() -> None:
    spec = ToolRounds(filter="tool_rounds", rows="all", at_least=1, at_most=2)
    call = TRAJECTORY.calls[0]
    for calls, kept in ((0, False), (1, True), (2, True), (3, False)):
        row = Item(replace(TRAJECTORY, calls=(call,) * calls), "s", Path())
        assert (rounds_outside(spec, row) is None) is kept
    with pytest.raises(ValidationError, match="at_least exceeds at_most"):
        ToolRounds(filter="tool_rounds", rows="all", at_least=3, at_most=2)


def test_a_trace_that_teaches_a_mistake_is_dropped() -> None:
    spec = CompleteTraces(filter="complete_traces", rows="all")
    assert broken(spec, Item(TRAJECTORY, "s", Path())) is None
    failed = replace(TRAJECTORY, calls=(replace(TRAJECTORY.calls[0], status="error"),))
    assert "call 0" in (broken(spec, Item(failed, "s", Path())) or "")
    assert broken(spec, Item(replace(TRAJECTORY, answer=None), "s", Path()))
    assert broken(spec, Item(replace(TRAJECTORY, stop_reason="length"), "s", Path()))


def test_a_reply_is_cached_by_question_and_a_verdict_also_by_label() -> None:
    first = sample()
    key = asked_key(first, [b"p"], {"seed": 0})
    renamed = replace(first, id="other", source="other")
    relabelled = replace(first, ground_truth="5")
    assert asked_key(renamed, [b"p"], {"seed": 0}) == key
    assert asked_key(relabelled, [b"p"], {"seed": 0}) == key
    assert judged_key(key, relabelled) != judged_key(key, first)
    others = [(replace(first, tools=("python",)), [b"p"], 0), (first, [b"q"], 0), (first, [b"p"], 1)]
    assert len({key, *(asked_key(a, b, {"seed": c}) for a, b, c in others)}) == 4
