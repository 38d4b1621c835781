"""Whatever a row contains, it becomes a record or an error with a fix, and nothing else."""

import contextlib
import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.formats.published import THYME_RESPONSE, coded, jpeg, user
from vtune.config import load_recipe
from vtune.data.formats.building import Options, given_id
from vtune.data.formats.codev import codev_sample
from vtune.data.formats.conversations import conversation_trace
from vtune.data.formats.deepeyes import deepeyes_sample
from vtune.data.formats.hub import ColumnMap
from vtune.data.formats.questions import question_sample
from vtune.data.formats.regions import BoxColumn
from vtune.data.formats.search import mars_sample, mmsearch_sample
from vtune.data.formats.source import Place
from vtune.data.formats.thyme import thyme_trace
from vtune.data.formats.verl import verl_sample
from vtune.data.formats.vtriune import vtriune_sample
from vtune.errors import DataError, RecipeError
from vtune.schema.fields import Row
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_to_row
from vtune.verifiers import VERIFIERS, check_ground_truth
from vtune.verifiers.exact import verify_exact

PLACE = Place(Path("a.parquet"), 3, "a")
OPTIONS = Options()
PACKED = {"reward_model": {}, "extra_info": {}, "tools": [], "evidence": [], "choices": []}

VERL = {
    "data_source": "qa",
    "prompt": user("<image>Which?\nA. red\nB. blue"),
    "images": [{"bytes": jpeg(0), "path": None}],
    "ability": "qa",
    "env_name": "",
    "reward_model": {"style": "rule", "ground_truth": "B", "candidate_answers": '["b"]'},
    "extra_info": {"index": 3, "answer": "B", "id": "x"},
}
BOXES = "<answer>[{'bbox_2d': [1, 2, 3, 4], 'label': 'cup'}]</answer>"
VTRIUNE = VERL | {
    "reward_model": {
        "answer": "",
        "ground_truth": BOXES,
        "accuracy_ratio": 1.0,
        "format_ratio": 0.1,
        "verifier": "detection",
        "verifier_parm": {"det_verifier_normalized": True, "det_reward_ratio": {"map": 1.0}},
    }
}
QUESTION = {"problem": "Which?", "images": [jpeg(0)], "answer": "red", "options": ["red", "blue"], "id": 1}
THYME = {"image": [coded(0), coded(1)], "question": "<image>Which?", "response": THYME_RESPONSE}
CHAT = {
    "messages": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which?"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "zoom", "arguments": '{"x": 1}'}}]},
        {"role": "tool", "content": "<image>"},
        {"role": "assistant", "content": "<answer>7</answer>"},
    ],
    "images": [jpeg(0), coded(1)],
    "tools": '[{"name": "zoom", "parameters": {}}]',
}
MARS = {"prompt": user("<image>Who?"), "image": [jpeg(0)], "reward_model": {"ground_truth": ["a", "b"]}}

CASES: dict[str, tuple[Row, Callable[[Row], Any]]] = {
    "verl": (VERL, lambda row: verl_sample(row, PLACE, OPTIONS)),
    "deepeyes": (VERL, lambda row: deepeyes_sample(row, PLACE, OPTIONS)),
    "codev": (VERL, lambda row: codev_sample(row, PLACE, OPTIONS)),
    "mmsearch": (VERL, lambda row: mmsearch_sample(row, PLACE, OPTIONS)),
    "vtriune": (VTRIUNE, lambda row: vtriune_sample(row, PLACE, OPTIONS)),
    "questions": (QUESTION, lambda row: question_sample(row, PLACE, OPTIONS, source="a")),
    "thyme": (THYME, lambda row: thyme_trace(row, PLACE, OPTIONS)),
    "conversations": (CHAT, lambda row: conversation_trace(row, PLACE, OPTIONS)),
    "mars": (MARS, lambda row: mars_sample(row, PLACE, OPTIONS, source="a", rule=None)),
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from(["<image>", "[", "[1]", "{}", "A", "\\boxed{", json.dumps(PACKED), "../a.jpg", "\0"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "bytes", "path", "type", "text", "vtune", "id", "label"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a row."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


def changed(row: Row, path: tuple[Any, ...], value: Any) -> Row:
    row = copy.deepcopy(row)
    node: Any = row
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return row


@pytest.mark.parametrize("name", CASES)
def test_the_unchanged_row_becomes_a_record(name: str) -> None:
    row, convert = CASES[name]
    assert convert(row)


def test_a_mistake_about_boxes_in_a_column_map_names_the_key(tmp_path: Path) -> None:
    file = tmp_path / "columns.yaml"
    start = "source: a\nquestion: q\nanswer: r\n"
    file.write_text(f"{start}evidence: {{column: boxes, space: pixel}}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(file, ColumnMap)
    assert "`evidence.space`" in str(caught.value)
    assert "1 problem" in str(caught.value)
    file.write_text(f"{start}evidence: boxes\n")
    assert load_recipe(file, ColumnMap).evidence == BoxColumn(column="boxes")


@pytest.mark.parametrize("make", [verl_sample, vtriune_sample])
def test_a_bare_number_as_id_is_made_unique_by_the_source(make: Callable[..., Sample]) -> None:
    row = VERL if make is verl_sample else VTRIUNE
    found = {
        source: make(changed(row | {"data_source": source}, ("extra_info", "id"), 0), PLACE, OPTIONS).id
        for source in ("vstar", "chart")
    }
    assert found == {"vstar": "vstar/0", "chart": "chart/0"}
    assert [given_id(one, "vstar") for one in (None, "7", "vstar_7")] == [None, "vstar/7", "vstar_7"]


def test_a_vtriune_reasoning_answer_may_be_words() -> None:
    judge = VTRIUNE["reward_model"] | {"ground_truth": "\\boxed{light blue}", "verifier": "mathverify"}
    sample = vtriune_sample(VTRIUNE | {"ability": "puzzle", "reward_model": judge}, PLACE, OPTIONS)
    assert (sample.verifier, sample.ground_truth) == ("exact", "light blue")
    check_ground_truth(sample)
    scores = [
        verify_exact(f"It is \\boxed{{{said}}}.", sample).score for said in ("Light  blue", "blue light")
    ]
    assert scores == [1.0, 0.0]


@pytest.mark.parametrize(
    ("truth", "verifier"),
    [
        ("1:20", "exact"),
        ("\\boxed{3-2}", "exact"),
        ("2024-01-02", "exact"),
        ("3 1 2", "exact"),
        ("東京", "exact"),
        ("да", "exact"),
        ("5元", "exact"),
        ("π", "math"),
        ("½", "math"),
        ("x²", "math"),
        ("3 cm²", "math"),
        ("5\\text{元}", "math"),
        ("3:4", "math"),
        ("10 000", "math"),
        ("-5", "math"),
        ("20 °C", "math"),
        ("x-3", "math"),
    ],
)
def test_vtriune_answers_with_digits_that_are_not_values_use_exact(truth: str, verifier: str) -> None:
    judge = VTRIUNE["reward_model"] | {"ground_truth": truth, "verifier": "mathverify"}
    sample = vtriune_sample(VTRIUNE | {"ability": "chart", "reward_model": judge}, PLACE, OPTIONS)
    assert sample.verifier == verifier
    check_ground_truth(sample)


@pytest.mark.parametrize("name", ["verl", "vtriune"])
@pytest.mark.parametrize(
    "packed", ["", "{", "[]", json.dumps(PACKED), json.dumps(PACKED | {"reward_model": 1})]
)
def test_a_packed_field_that_no_export_wrote_is_reported(name: str, packed: str) -> None:
    row, convert = CASES[name]
    with pytest.raises(DataError, match="not what an export writes"):
        convert(changed(row, ("extra_info", "vtune"), packed))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_corrupted_row_is_an_error_with_a_fix_and_not_a_crash(name: str, data: st.DataObject) -> None:
    row, convert = CASES[name]
    odd = row
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(places(odd)[1:]))
        odd = changed(odd, path, data.draw(values))
    try:
        record = convert(odd)
    except DataError as told:
        fix = told.fix
    else:
        fix = "none is needed"
        if isinstance(record, Sample):
            sample_to_row(record)
    assert fix


@pytest.mark.parametrize(
    "piece", ["<sandbox_output>", "<code>", "<answer>", " ", "\n", "</sandbox_output>", "Error"]
)
def test_a_huge_response_takes_linear_time(piece: str) -> None:
    """A megabyte takes at most 0.2 s; searching again from each of its tags would take an hour."""
    flood = piece * (1_000_000 // len(piece))
    for response in (
        f"<think>{flood}</think>",
        f"<think>{flood}<code>x</code><sandbox_output>{flood}</sandbox_output>{flood}<answer>7</answer>",
    ):
        began = time.process_time()
        with contextlib.suppress(DataError):
            thyme_trace({"image": [], "question": "?", "response": response}, PLACE, OPTIONS)
        assert time.process_time() - began < 5.0


def test_a_number_as_text_is_not_taken_as_an_answer_outside_the_options() -> None:
    """A column with numbers and words holds only texts; a reply with a letter would be wrong."""
    with pytest.raises(DataError, match="1 is not one of the options"):
        question_sample(QUESTION | {"answer": "1"}, PLACE, OPTIONS, source="easyr1")
    among = question_sample(
        QUESTION | {"answer": "1", "options": ["0", "1"]}, PLACE, OPTIONS, source="easyr1"
    )
    assert (among.ground_truth, among.verifier, among.choices) == ("1", "choice", ("0", "1"))
    numbered = question_sample(QUESTION | {"answer": 1}, PLACE, OPTIONS, source="easyr1")
    assert (numbered.ground_truth, numbered.choices) == ("B", ("red", "blue"))


def test_an_answer_outside_the_options_is_refused_unless_a_verifier_is_named() -> None:
    """Before, it became a question for the verifier `exact`, for which every letter was wrong."""
    for answer in ("yellow", "2.5", "\\frac{1}{2}"):
        with pytest.raises(DataError, match="is not one of the options") as caught:
            question_sample(QUESTION | {"answer": answer}, PLACE, OPTIONS, source="easyr1")
        assert "name a verifier" in caught.value.fix
    for answer in ("A, B", "AB", "(A) and (B)"):
        assert question_sample(QUESTION | {"answer": answer}, PLACE, OPTIONS, source="a").verifier == "exact"
    with pytest.raises(DataError, match="is not one of the options"):
        question_sample(QUESTION | {"answer": "A, Z"}, PLACE, OPTIONS, source="a")
    named = question_sample(QUESTION | {"answer": "yellow"}, PLACE, Options(verifier="judge"), source="a")
    assert (named.verifier, named.ground_truth) == ("judge", "yellow")
    several = question_sample(QUESTION | {"answer": ["red", "yellow"]}, PLACE, OPTIONS, source="a")
    assert several.verifier_parm == {"aliases": ["yellow"]}


@pytest.mark.parametrize(
    "given", [["A. Blue", "B. Red"], ["(a) Blue", "(b) Red"], ["A) Blue", "B)Red"], ["A: Blue", "B: Red"]]
)
@pytest.mark.parametrize("answer", ["Red", "red", "B", "(B)", "B. Red", 1])
def test_options_with_letters_are_listed_once_and_used_for_choice(given: Any, answer: Any) -> None:
    found = question_sample(QUESTION | {"answer": answer, "options": given}, PLACE, OPTIONS, source="a")
    assert (found.verifier, found.choices) == ("choice", ("Blue", "Red"))
    assert found.question.endswith("\nA. Blue\nB. Red")
    assert VERIFIERS["choice"].verify("<answer>B</answer>", found).score == 1.0
    assert VERIFIERS["choice"].verify("<answer>A</answer>", found).score == 0.0


@pytest.mark.parametrize(
    "given", [["A. Blue", "C. Red"], ["B. Blue", "A. Red"], ["A. Blue", "Red"], ["a cup", "b"]]
)
def test_options_with_letters_out_of_order_are_unchanged(given: Any) -> None:
    found = question_sample(QUESTION | {"answer": given[0], "options": given}, PLACE, OPTIONS, source="a")
    assert found.choices == tuple(given)


@pytest.mark.parametrize("numbers", [[10, 20, 110, 140], [10.5, 20.0]])
def test_a_list_of_numbers_is_one_answer_not_several(numbers: list[float]) -> None:
    judge = {"style": "rule", "ground_truth": numbers}
    rows = [
        verl_sample(VERL | {"prompt": user("<image>Where?"), "reward_model": judge}, PLACE, OPTIONS),
        question_sample({"problem": "Where?", "answer": numbers}, PLACE, OPTIONS, source="a"),
    ]
    for sample in rows:
        assert json.loads(sample.ground_truth) == numbers
        assert "aliases" not in sample.verifier_parm
    named = Options(verifier="exact")
    years = verl_sample(VERL | {"reward_model": {"ground_truth": [1999, 2000]}}, PLACE, named)
    assert (years.ground_truth, years.verifier_parm["aliases"]) == ("1999", ["2000"])


@pytest.mark.parametrize("medium", ["video", "audio"])
def test_a_question_about_a_video_or_a_sound_is_refused(medium: str) -> None:
    row = VERL | {"prompt": user(f"<{medium}>Which?"), "images": [], f"{medium}s": ["x.mp4"]}
    with pytest.raises(DataError, match="samples show only pictures"):
        verl_sample(row, PLACE, OPTIONS)
    assert verl_sample(row | {f"{medium}s": []}, PLACE, OPTIONS).question == f"<{medium}>Which?"
