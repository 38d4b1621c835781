"""The particulars of each published layout."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.data.benchmarks import hrbench_rows, make_vstar, write_tsv
from tests.data.formats.published import MAKERS, SIZE, Published, coded, jpeg, lines, parquet, user
from vtune.data.formats.building import Options
from vtune.data.formats.questions import question_sample
from vtune.data.formats.source import Place
from vtune.data.formats.table import FORMATS, format_of
from vtune.data.formats.thyme import thyme_trace
from vtune.data.formats.verl import verl_sample
from vtune.data.formats.vtriune import parse_boxes
from vtune.data.options import listing
from vtune.errors import DataError, RecipeError
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_from_row, sample_to_row
from vtune.schema.trajectory import Trajectory

if TYPE_CHECKING:
    from vtune.models.policy import Policy

Read = Callable[[str], dict[str, Sample]]
HERE = Place(Path("a.parquet"), 0, "a")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The samples of a format's fixture by id."""

    def of(name: str) -> dict[str, Sample]:
        published: Published = MAKERS[name](tmp_path)
        found = [
            entry for path in published.paths for _, entry in FORMATS[name].read(path, published.options)
        ]
        return {entry.id: entry for entry in found if isinstance(entry, Sample)}

    return of


def test_vtriune_boxes_keep_their_space_and_weights(read: Read) -> None:
    sample = read("vtriune")["row-3"]
    assert json.loads(sample.ground_truth) == [{"label": "cat's tail", "bbox_2d": [12, 40, 510, 600]}]
    assert sample.verifier_parm == {
        "space": "relative_1000",
        "det_verifier_normalized": True,
        "width": SIZE[0],
        "height": SIZE[1],
        "det_reward_ratio": {
            "iou_max_label_first": 1.0,
            "iou_max_iou_first": 0.0,
            "iou_completeness": 0.3,
            "map": 0.0,
            "map50": 0.0,
            "map75": 0.0,
        },
    }
    assert (sample.verifier, sample.format_ratio) == ("grounding", 0.1)


def test_vtriune_answers_are_unboxed_and_requested_in_a_box(read: Read) -> None:
    sample = read("vtriune")["row-0"]
    assert sample.ground_truth == "\\frac{4}{3}"
    assert sample.verifier_parm == {"answer_in": "boxed"}
    assert "mm_math/train/train_mixed_6/1" in read("vtriune")  # a row without an id is named by its place


@pytest.mark.parametrize(
    "text",
    [
        "[{'bbox_2d': [1, 2, 3, 4], 'label': \"it's\"}]",
        '[{"bbox_2d": [1, 2, 3, 4], "label": "it\'s"}]',
        "<answer>\n{'label': \"it's\", 'bbox_2d': (1, 2, 3, 4)}\n</answer>",
    ],
)
def test_boxes_are_read_in_json_and_python_syntax(text: str) -> None:
    assert parse_boxes(text) == [{"label": "it's", "bbox_2d": [1, 2, 3, 4]}]


@pytest.mark.parametrize(
    "text", ["", "[]", "[1, 2, 3, 4]", "[{'bbox_2d': [1, 2, 1, 4]}]", "[{'bbox_2d': 'x'}]"]
)
def test_an_invalid_box_is_an_error(text: str) -> None:
    with pytest.raises(DataError):
        parse_boxes(text)


def test_deepeyes_files_may_differ_in_tools_and_columns(read: Read) -> None:
    rows = read("deepeyes")
    by_source = {sample.source: sample for sample in rows.values()}
    assert by_source["vstar"].tools == ("image_zoom_in_tool",)
    assert by_source["thinklite_eureka"].tools == ()
    assert by_source["chart"].extra["rationale"] == "The tallest bar."
    assert by_source["vstar"].prompt[0].role == "system"
    assert rows["vstar/data_0.1.2_visual_toolbox_v2/1"].choices == ("red", "blue")


def test_codev_offers_python_and_keeps_its_picture_details(read: Read) -> None:
    sample = next(iter(read("codev").values()))
    assert (sample.tools, sample.ability, sample.tool_ratio) == (("python",), "visual_search", 0.5)
    assert sample.extra["image_size"] == list(SIZE)
    assert sample.images[0].data == jpeg(0)


def test_mars_judges_as_its_meta_file_says_and_keeps_stored_searches(read: Read) -> None:
    asked, picked = read("mars").values()
    assert (asked.source, asked.verifier, asked.verifier_parm) == (
        "fvqa_train",
        "judge",
        {"aliases": ["G. Eiffel"]},
    )
    assert asked.tools == ("image_zoom_in_tool", "text_search_tool", "image_search_tool")
    assert asked.extra["image_search_thumbnail_list"] == ["t/0.jpg", "t/1.jpg"]
    assert (picked.verifier, picked.choices, picked.ground_truth) == ("choice", ("red", "blue"), "A")
    # It has no stored search, so a search finds nothing.
    assert picked.extra["image_search_title_list"] == []


def test_mars_json_lines_need_no_meta_file(tmp_path: Path) -> None:
    published = MAKERS["mars"](tmp_path)
    options = Options(images=tmp_path / "images")
    entries = [entry for _, entry in FORMATS["mars"].read(tmp_path / "mcq.jsonl", options)]
    (sample,) = entries
    assert isinstance(sample, Sample)
    assert (sample.id, sample.source, sample.verifier) == ("mcq/0", "mcq", "choice")
    assert published.paths


def test_mmsearch_takes_every_candidate(read: Read) -> None:
    rows = read("mmsearch")
    assert rows["fvqa_0"].verifier_parm == {"aliases": ["AFC Ajax"], "match": "squad"}
    assert rows["fvqa_1"].verifier_parm == {"match": "squad"}
    assert rows["fvqa_0"].extra["image_urls"] == ["https://example.org/0.jpg"]


def test_coco_boxes_are_thousandths_of_the_picture(read: Read) -> None:
    rows = read("coco")
    boxes = json.loads(rows["coco_detection/1"].ground_truth)
    assert boxes == [
        {"label": "cat", "bbox_2d": [0, 0, 252, 400]},
        {"label": "cat", "bbox_2d": [500, 0, 750, 400]},
        {"label": "dog", "bbox_2d": [750, 500, 1000, 1000]},
    ]
    assert rows["coco_detection/1"].verifier_parm == {
        "space": "relative_1000",
        "width": 200,
        "height": 100,
    }
    assert rows["coco_grounding/12"].evidence[0].bbox == (150.0, 50.0, 200.0, 100.0)


def test_coco_asks_only_for_countable_objects(read: Read) -> None:
    rows = read("coco")
    assert "dog" not in rows["coco_detection/2"].question  # a crowd of them
    assert {key for key in rows if key.startswith("coco_counting")} == {
        "coco_counting/1/cat",
        "coco_counting/1/dog",
        "coco_counting/2/cup",
    }
    assert {key for key in rows if key.startswith("coco_grounding")} == {
        "coco_grounding/12",
        "coco_grounding/13",
    }


def test_v3det_names_that_differ_only_in_case_are_one_category(read: Read) -> None:
    """Its verifier ignores case, so `Timer` and `timer` could not be told apart."""
    rows = read("v3det")
    timers = rows["v3det/n07745046/21_371_c"]
    assert timers.question.endswith("categories within the image:\n- Timer")
    assert [box["label"] for box in json.loads(timers.ground_truth)] == ["Timer", "Timer"]
    assert "novel" not in timers.extra
    assert rows["v3det/n07745046/22_371_c"].extra == {
        "image_path": "images/n07745046/22_371_c.jpg",
        "novel": ["compass (drawing tool)"],
    }


def test_objects365_asks_for_nothing_doubtful_or_duplicated(read: Read) -> None:
    rows = read("objects365")
    first, second = (rows[f"objects365/v1/patch8/objects365_v1_0042091{n}"] for n in (6, 7))
    assert json.loads(first.ground_truth) == [
        {"label": "Person", "bbox_2d": [50, 100, 252, 500]},
        {"label": "Formula 1", "bbox_2d": [500, 100, 700, 500]},
    ]
    assert "Cabinet" not in first.question  # a picture of one
    assert "Person" not in second.question  # a person and a mirror image


@pytest.mark.parametrize("name", ["v3det", "objects365"])
def test_photographs_are_found_with_and_without_leading_folders(name: str, tmp_path: Path) -> None:
    published = MAKERS[name](tmp_path)
    there = published.options.images
    assert there is not None
    moved = tmp_path / "whole" / "images" / ("" if name == "v3det" else "v1")
    moved.parent.mkdir(parents=True)
    there.rename(moved)
    found = FORMATS[name].read(published.paths[0], Options(images=tmp_path / "whole"))
    assert sum(isinstance(entry, Sample) for _, entry in found) == 2


def test_thyme_becomes_turns_calls_and_pictures_in_order(tmp_path: Path) -> None:
    published = MAKERS["thyme"](tmp_path)
    rows = [entry for path in published.paths for _, entry in FORMATS["thyme"].read(path, Options())]
    trace = rows[0]
    assert isinstance(trace, Trajectory)
    assert [message.role for message in trace.messages] == ["user", "assistant"] * 3
    assert trace.messages[2].content == "<sandbox_output>\n<image>\n</sandbox_output>"
    assert trace.messages[3].content.startswith("Once more.")
    assert [picture.origin for picture in trace.images] == ["input", "call:0"]
    assert [(call.status, call.images) for call in trace.calls] == [("ok", (1,)), ("error", ())]
    assert trace.calls[1].error == "ZeroDivisionError: division by zero"
    assert "print(1/0)" in json.loads(trace.calls[1].arguments)["code"]
    assert trace.answer == "7"


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ("<answer>7</answer><sandbox_output>5</sandbox_output>", "has no <code>"),
        ("<code>x</code> so <sandbox_output>5</sandbox_output><answer>7</answer>", "has no <code>"),
        ("<code>x</code><sandbox_output>5 <answer>7</answer>", "a <sandbox_output> has no end"),
        ("<code>x</code>5</sandbox_output><answer>7</answer>", "a <sandbox_output> has no end"),
        ("It is seven.", "no <answer>"),
        ("<code>x</code><sandbox_output><image></sandbox_output><answer>7</answer>", "1 pictures for 2"),
    ],
)
def test_an_unusable_response_is_reported(response: str, why: str, tmp_path: Path) -> None:
    row = {"image": [coded(0)], "question": "<image>Which?", "response": response}
    with pytest.raises(DataError, match=why):
        thyme_trace(row, Place(tmp_path / "a.parquet", 0, "a"), Options())


def test_an_option_given_by_number_becomes_its_letter_and_is_listed(tmp_path: Path) -> None:
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: q\nanswer: a\nchoices: c\n")
    file = lines(
        tmp_path / "own.jsonl",
        [{"q": "Which?", "a": 1, "c": ["red", "blue"]}, {"q": "Which?", "a": 2, "c": ["red", "blue"]}],
    )
    good, bad = [entry for _, entry in FORMATS["hf"].read(file, Options(columns=columns))]
    assert isinstance(good, Sample)
    assert (good.ground_truth, good.question) == ("B", "Which?\nA. red\nB. blue")
    assert isinstance(bad, DataError)


@pytest.mark.parametrize(
    ("rewards", "verifier"),
    [
        pytest.param("em_score_mcq", "choice", id="a name alone"),
        pytest.param("em_score_mcq_v2", "judge", id="a longer name"),
        pytest.param(["em_score_mcq_v2", "format_score"], "judge", id="a longer name in a list"),
        pytest.param(5, None, id="a number"),
        pytest.param([["em_score_mcq"]], None, id="a list of lists"),
    ],
)
def test_mars_rewards_are_matched_by_full_name(rewards: Any, verifier: str | None, tmp_path: Path) -> None:
    row = {"prompt": user("Which?\nA. red\nB. blue"), "reward_model": {"ground_truth": "A"}}
    lines(tmp_path / "a.jsonl", [row])
    meta = tmp_path / "meta.json"
    meta.write_text(json.dumps({"a": {"annotation": "a.jsonl", "reward_fn": rewards}}))
    ((_, entry),) = FORMATS["mars"].read(meta, Options())
    if isinstance(entry, Sample):
        assert entry.verifier == verifier
    else:
        assert isinstance(entry, DataError)
        assert "`reward_fn`" in entry.where
        assert verifier is None


@pytest.mark.parametrize(("rewards", "verifier"), [("em_score_mcq", "choice"), ("llm_score", "judge")])
def test_mars_test_sets_take_their_verifier_from_the_unused_rewards(
    rewards: str, verifier: str, tmp_path: Path
) -> None:
    lines(tmp_path / "a.jsonl", [{"prompt": user("Which year?"), "reward_model": {"ground_truth": "A"}}])
    entry = {"annotation": "a.jsonl", "reward_fn": [], "unused_reward_fn": [rewards]}
    (tmp_path / "meta.json").write_text(json.dumps({"a": entry}))
    ((_, found),) = FORMATS["mars"].read(tmp_path / "meta.json", Options())
    assert isinstance(found, Sample)
    assert found.verifier == verifier


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        pytest.param(
            [{"role": "assistant", "content": "Red."}],
            "no turn is the user's, only assistant",
            id="assistant",
        ),
        pytest.param(
            [{"role": "narrator", "content": "Which?"}], "no turn is the user's, only narrator", id="narrator"
        ),
        pytest.param([{"role": "user", "content": " "}], "the question is empty", id="empty"),
    ],
)
def test_a_conversation_without_a_question_is_reported_with_the_reason(turns: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        question_sample({"problem": turns, "answer": "red"}, HERE, Options(), source="a")


@pytest.mark.parametrize(
    ("options", "answer", "truth"),
    [
        pytest.param({"A": "red", "B": "blue", "C": None, "D": ""}, "B", "B", id="empty at the end"),
        pytest.param(["red", "blue", None], "blue", "blue", id="a list that is empty at the end"),
        pytest.param({str(number): f"cup {number}" for number in range(11)}, 10, "K", id="ten behind two"),
        pytest.param({"1": "red", "2": "blue"}, 1, "A", id="numbers from 1"),
        pytest.param({"1": "red", "2": "blue"}, "2", "B", id="a number as text"),
        pytest.param(["red", "blue"], 1.0, "B", id="a number among nulls"),
        pytest.param(["7", "2"], 2.0, "2", id="a number that can only be the text of an option"),
        pytest.param(["2", "1"], 1.0, "1", id="a number that is the text of its own option"),
    ],
)
def test_the_truth_names_the_option_meant_by_the_file(options: Any, answer: Any, truth: str) -> None:
    row = {"problem": "Which?", "answer": answer, "options": options}
    sample = question_sample(row, HERE, Options(), source="a")
    assert (sample.verifier, sample.ground_truth) == ("choice", truth)
    assert sample.question == f"Which?\n{listing(sample.choices)}"
    if isinstance(options, dict):
        assert list(sample.choices) == [text for text in options.values() if text]


@pytest.mark.parametrize(
    ("options", "answer", "why"),
    [
        pytest.param({"A": "red", "B": None, "C": "blue"}, "C", "the options are A, C, not", id="null"),
        pytest.param({"A": "red", "B": " ", "C": "blue"}, "C", "the options are A, C, not", id="empty"),
        pytest.param({"A": "red", "C": "blue"}, "C", "the options are A, C, not", id="missing"),
        pytest.param({"0": "red", "2": "blue"}, 2, "the options are 0, 2, not", id="missing number"),
        pytest.param(["red", None, "blue"], 2, "the options are 0, 2, not", id="null in a list"),
        pytest.param({"1": "red", "2": "blue"}, 0, "option 0 of 2", id="no such number"),
        pytest.param(["red", "blue"], 2.0, "option 2 of 2", id="no such number among nulls"),
    ],
)
def test_options_with_a_gap_are_reported(options: Any, answer: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        question_sample(
            {"problem": "Which?", "answer": answer, "options": options}, HERE, Options(), source="a"
        )


@pytest.mark.parametrize("answer", [1, 1.0])
def test_a_number_that_names_two_options_is_refused_unless_a_map_decides(
    answer: float, tmp_path: Path
) -> None:
    row = {"q": "How many?", "a": answer, "o": ["2", "3", "1"]}
    columns = tmp_path / "columns.yaml"
    file = lines(tmp_path / "own.jsonl", [row])
    for said, truth in (("number", "B"), ("text", "C")):
        columns.write_text(f"source: own\nquestion: q\nanswer: a\nchoices: o\nanswer_is: {said}\n")
        ((_, sample),) = FORMATS["hf"].read(file, Options(columns=columns))
        assert isinstance(sample, Sample)
        assert sample.ground_truth == truth
    columns.write_text("source: own\nquestion: q\nanswer: a\nchoices: o\n")
    ((_, refused),) = FORMATS["hf"].read(file, Options(columns=columns))
    assert "1 is the text of one option and the number or letter of another" in str(refused)


@pytest.mark.parametrize("options", [{"A": "B", "B": "A"}, ["B", "A"]])
@pytest.mark.parametrize(("said", "truth"), [("number", "B"), ("text", "A"), (None, None)])
def test_a_letter_may_be_the_text_of_another_option(
    said: str | None, truth: str | None, options: Any
) -> None:
    row = {"problem": "Which?", "answer": "B", "options": options}
    if truth is None:
        with pytest.raises(DataError, match="the text of one option and the number or letter of another"):
            question_sample(row, HERE, Options(), source="a")
        return
    sample = question_sample(row, HERE, Options(), source="a", answer_is=said)  # type: ignore[arg-type]
    assert sample.ground_truth == truth


def test_a_map_with_an_unknown_column_is_reported(tmp_path: Path) -> None:
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: qq\nanswer: a\n")
    file = parquet(tmp_path / "own.parquet", [{"q": "Which?", "a": "red"}])
    with pytest.raises(DataError, match="no column `qq`") as caught:
        list(FORMATS["hf"].read(file, Options(columns=columns)))
    assert "q, a" in caught.value.fix
    for name, text in (("own.csv", "q,a\n"), ("own.tsv", "q\ta\n")):
        table = tmp_path / name
        table.write_text(text)  # a table without rows also names its columns
        with pytest.raises(DataError, match="no column `qq`") as caught:
            list(FORMATS["hf"].read(table, Options(columns=columns)))
        assert "q, a" in caught.value.fix
    for name, text in (("none.csv", ""), ("right.csv", "qq,a\n"), ("none.json", "[]")):
        (tmp_path / name).write_text(text)
        assert list(FORMATS["hf"].read(tmp_path / name, Options(columns=columns))) == []
    with pytest.raises(RecipeError, match="map of columns"):
        list(FORMATS["hf"].read(file, Options()))


def test_a_map_may_set_tools_and_purpose_of_its_rows(tmp_path: Path) -> None:
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: q\nanswer: a\ntools: [python]\n")
    turns = [{"role": "system", "content": "Call our tool."}, *user("Which?")]
    file = lines(tmp_path / "own.jsonl", [{"q": turns, "a": "red"}])
    ((_, sample),) = FORMATS["hf"].read(file, Options(columns=columns))
    assert isinstance(sample, Sample)
    assert (sample.tools, [turn.role for turn in sample.prompt]) == (("python",), ["user"])
    assert sample.extra["published_prompt"] == turns
    columns.write_text("source: own\nquestion: q\nanswer: a\ntools: [pyhton]\n")
    with pytest.raises(RecipeError, match=r"columns\.yaml:4: `tools\.0`"):
        list(FORMATS["hf"].read(file, Options(columns=columns)))


@pytest.mark.parametrize(
    ("row", "source"),
    [
        pytest.param({"id": "FigureQA_17"}, "FigureQA", id="the id"),
        pytest.param({"id": "okvqa/train/17"}, "OK-VQA", id="an id of several parts"),
        pytest.param({"id": 17}, "thinklite", id="a number"),
        pytest.param({"id": "17"}, "thinklite", id="a number as text"),
        pytest.param({"id": "IconQA_17", "data_source": "geometry3k"}, "Geometry3K", id="a column first"),
        pytest.param({"dataset": "CLEVR"}, "CLEVR", id="a part that nobody knows"),
        pytest.param({}, "thinklite", id="nothing"),
    ],
)
def test_thinklite_keeps_the_names_of_its_source_data_sets(
    row: dict[str, Any], source: str, tmp_path: Path
) -> None:
    columns = {
        "image": jpeg(0),
        "problem": "<image>Which?",
        "answer": "red",
        "choices": "",
        "ground_truth": "red",
    }
    file = parquet(tmp_path / "ThinkLite-VL-70k.parquet", [columns | row])
    ((_, sample),) = FORMATS["thinklite"].read(file, Options())
    assert isinstance(sample, Sample)
    assert (sample.source, sample.choices) == (source, ())
    assert sample.id.startswith(f"{source}/")


def test_a_saved_data_set_is_read_by_split(tmp_path: Path) -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"q": ["Who?"], "a": ["Bob"]})
    other = datasets.Dataset.from_dict({"q": ["Where?"], "a": ["here"]})
    datasets.DatasetDict({"train": rows, "test": other}).save_to_disk(str(tmp_path / "saved"))
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: q\nanswer: a\nsplit: test\nverifier: ocr\n")
    options = Options(columns=columns)
    ((_, sample),) = FORMATS["hf"].read(tmp_path / "saved", options)
    assert isinstance(sample, Sample)
    assert (sample.id, sample.question, sample.verifier) == ("own/test/0", "Where?", "ocr")
    columns.write_text("source: own\nquestion: q\nanswer: a\nsplit: dev\n")
    with pytest.raises(DataError, match="datasets cannot open it"):
        list(FORMATS["hf"].read(tmp_path / "saved", options))


@pytest.mark.parametrize(("name", "source"), [("geo.json", "geo"), ("all.json", "file/all")])
def test_rows_named_after_their_file_get_no_reserved_name(name: str, source: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps([{"problem": "How long is it?", "answer": "3"}]))
    ((_, made),) = FORMATS["easyr1"].read(tmp_path / name, Options())
    assert isinstance(made, Sample)
    assert (made.source, made.id) == (source, f"{source}/0" if source == "geo" else "file/all/all/0")


def test_verl_takes_several_answers_where_its_verifier_can(tmp_path: Path) -> None:
    row = {
        "data_source": "qa",
        "prompt": user("Who?"),
        "reward_model": {"style": "rule", "ground_truth": ["Vermeer", "Johannes Vermeer"]},
    }
    file = lines(tmp_path / "qa.jsonl", [row])
    ((_, sample),) = FORMATS["verl"].read(file, Options())
    assert isinstance(sample, Sample)
    assert (sample.verifier, sample.verifier_parm) == ("exact", {"aliases": ["Johannes Vermeer"]})
    ((_, error),) = FORMATS["verl"].read(file, Options(verifier="math"))
    assert isinstance(error, DataError)
    assert "--verifier exact" in error.fix


def test_a_damaged_file_is_one_error_and_the_next_file_is_read(tmp_path: Path) -> None:
    MAKERS["verl"](tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    entries = list(FORMATS["verl"].read(tmp_path, Options()))
    assert [place.row for place, _ in entries] == [None, 0, 1, 2, 3]
    assert isinstance(entries[0][1], DataError)


def test_an_unknown_format_gets_a_suggestion() -> None:
    with pytest.raises(RecipeError) as caught:
        format_of("deepeye")
    assert caught.value.fix.startswith("did you mean `deepeyes`? To add your own, list its file under `uses:")
    assert format_of("orsta") is FORMATS["vtriune"]


def test_sandbox_output_in_thyme_is_never_trained_on(tmp_path: Path, policy: "Policy") -> None:
    from vtune.rollout.transcript import replay

    published = MAKERS["thyme"](tmp_path)
    trace = next(entry for _, entry in FORMATS["thyme"].read(published.paths[0], Options()))
    assert isinstance(trace, Trajectory)
    book = replay(trace, policy.chat, policy.pictures)
    taught = [token for token, counts in zip(book.token_ids, book.loss_mask, strict=True) if counts]
    text = policy.chat.decode(taught)
    assert "image.crop((1, 2, 30, 40))" in text
    assert "<answer>7</answer>" in text
    assert "sandbox_output" not in text
    assert "division by zero" not in text
    assert "Which number?" not in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"question": " "}, "the question is empty", id="no question"),
        pytest.param(
            {"options": ["red", " "]}, "is empty, or the right one is listed twice", id="an empty option"
        ),
        pytest.param(
            {"options": ["red", "red"]}, "is empty, or the right one is listed twice", id="an option twice"
        ),
    ],
)
def test_unanswerable_benchmark_questions_are_skipped(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    folder = make_vstar(tmp_path / "vstar", 2, SIZE, (10, 10, 20, 20))
    (folder / "test_questions.jsonl").unlink()
    file = folder / "direct_attributes" / "sa_0000.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    entries = [entry for _, entry in FORMATS["vstar"].read(folder, Options())]
    assert [isinstance(entry, Sample) for entry in entries] == [False, True]
    assert why in str(entries[0])
    rows = hrbench_rows([jpeg(0)])
    rows[0] |= {"question": change["question"]} if "question" in change else {"B": rows[0]["A"]}
    entries = [entry for _, entry in FORMATS["hrbench"].read(write_tsv(tmp_path / "hr.tsv", rows), Options())]
    assert [isinstance(entry, Sample) for entry in entries] == [False, True, True, True]


def test_duplicate_wrong_options_do_not_exclude_a_question(tmp_path: Path) -> None:
    rows = hrbench_rows([jpeg(0)])
    assert rows[0]["answer"] == "A"
    rows[0] |= {"C": rows[0]["B"]}
    entries = [entry for _, entry in FORMATS["hrbench"].read(write_tsv(tmp_path / "hr.tsv", rows), Options())]
    assert all(isinstance(entry, Sample) for entry in entries)


@pytest.mark.parametrize("name", ["hf", "verl", "samples"])
def test_a_prompt_that_ends_with_the_answer_is_skipped_with_a_fix(name: str, tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "Look."},
        *user("How many?"),
        {"role": "assistant", "content": "<answer>3</answer>"},
    ]
    row = {"data_source": "own", "prompt": turns, "reward_model": {"ground_truth": "3"}}
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: prompt\nanswer: reward_model\n")
    if name == "hf":
        row |= {"reward_model": "3"}
    file = lines(tmp_path / "own.jsonl", [row, row | {"prompt": turns[:2]}])
    options = Options(columns=columns) if name == "hf" else Options()
    (_, error), (_, sample) = FORMATS[name].read(file, options)
    assert isinstance(error, DataError)
    assert (error.what, error.fix) == (
        "the prompt ends with the assistant's turn",
        "drop that turn, or the row",
    )
    assert isinstance(sample, Sample)


@pytest.mark.parametrize(
    ("judge", "what", "fix"),
    [
        pytest.param({}, "the row has no value for reward_model", "it has data_source, prompt", id="column"),
        pytest.param(
            {"reward_model": {"style": "rule"}},
            "`reward_model` has no value for ground_truth",
            "it has style",
            id="member",
        ),
    ],
)
def test_a_verl_row_without_a_truth_names_what_is_missing(
    judge: Any, what: str, fix: str, tmp_path: Path
) -> None:
    row = {"data_source": "qa", "prompt": user("Who?")} | judge
    ((_, error),) = FORMATS["verl"].read(lines(tmp_path / "qa.jsonl", [row]), Options())
    assert isinstance(error, DataError)
    assert (error.what, error.fix) == (what, fix)


def verl_row(text: str, truth: Any = "72", **columns: Any) -> dict[str, Any]:
    return {
        "data_source": "own",
        "prompt": user(text),
        "reward_model": {"style": "rule", "ground_truth": truth},
        **columns,
    }


HASHES = 'How many? Let\'s think step by step and output the final answer after "####".'


@pytest.mark.parametrize(
    "text", [HASHES, "How many? Put your final answer in the format of `#### <answer>`."]
)
def test_a_verl_prompt_that_asks_for_hashes_before_the_answer_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="after ####, where no answer is read") as caught:
        verl_sample(verl_row(text), HERE, Options())
    assert "import with --tools" in caught.value.fix


def test_hashes_in_a_verl_prompt_may_be_a_heading() -> None:
    verl_sample(verl_row("#### Question\nHow many?\nGive it after the heading."), HERE, Options())


def test_a_range_of_right_numbers_is_refused_with_an_alternative() -> None:
    with pytest.raises(
        DataError, match="the answer is a range of numbers, which no verifier takes"
    ) as caught:
        verl_sample(verl_row("How tall?", [{"wikidata": 100, "range": [90, 110]}]), HERE, Options())
    assert "InfoSeek: `answer`" in caught.value.fix
    assert (
        "of your own" not in caught.value.fix
    )  # a custom verifier would not help: its check refuses the range, too


def test_the_row_id_of_search_r1_is_kept_in_addition_to_the_sample_id() -> None:
    """It cannot be the sample id, as every source counts from 0."""
    row = verl_row("Who?", {"target": ["Vermeer"]}) | {"id": "test_0"}
    sample = verl_sample(row, HERE, Options())
    assert (sample.id == "test_0", sample.extra["id"]) == (False, "test_0")
    again = sample_from_row(sample_to_row(sample), place="x/0")
    assert (again.id, again.extra["id"]) == (sample.id, "test_0")
    more = {"extra_info": {"more_json": '{"level": 3}'}}
    assert verl_sample(row | more, HERE, Options()).extra == {**sample.extra, "level": 3}
    own = verl_sample(row | {"extra_info": {"id": "test_0"}}, HERE, Options())
    assert (own.id, "id" in own.extra) == ("test_0", False)


def test_all_targets_of_a_verl_search_row_are_right_answers() -> None:
    sample = verl_sample(verl_row("Who?", {"target": ["Vermeer", "Jan Vermeer"]}), HERE, Options())
    assert (sample.ground_truth, sample.verifier) == ("Vermeer", "exact")
    assert sample.verifier_parm == {"aliases": ["Jan Vermeer"], "match": "squad"}
    year = verl_sample(verl_row("When?", {"target": ["1990"]}), HERE, Options())
    assert (year.verifier, year.verifier_parm) == ("exact", {"match": "squad"})
    named = verl_sample(verl_row("When?", {"target": ["1990"]}), HERE, Options(verifier="exact"))
    assert named.verifier_parm == {"match": "squad"}
    for judge in (
        verl_sample(verl_row("Who?", {"target": ["Vermeer"]}), HERE, Options(verifier="judge")),
        verl_sample(verl_row("Who?", {"target": ["Vermeer"]}), HERE, Options(), model=True),
    ):
        assert (judge.verifier, judge.verifier_parm) == ("judge", {})
    assert verl_sample(verl_row("Who?", {"target": "Vermeer"}), HERE, Options()).ground_truth == "Vermeer"
    with pytest.raises(DataError):
        verl_sample(verl_row("Who?", {"target": []}), HERE, Options())
