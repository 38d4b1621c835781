import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.report.test_tables import printed
from tests.schema.records import trajectories
from tests.view.runs import LOOKED, MISSED, make_run
from vtune.errors import DataError
from vtune.report.trajectory import render_trajectory
from vtune.schema.labels import Label, append_label, read_labels
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.trajectory import Trajectory
from vtune.view.document import LONGEST, document_of, picture_bytes, shortened
from vtune.view.place import Place
from vtune.view.turns import turns_of


def documented(
    folder: Path, trajectory: Trajectory, asked: dict[str, object] | None = None
) -> dict[str, object]:
    file = folder / "trajectories" / "step-000003.parquet"
    return document_of(Place(folder, "run", "run"), file, 0, trajectory, asked)


@settings(max_examples=40)
@given(trajectories())
def test_the_parts_of_a_turn_add_up_to_the_turn(trajectory: Trajectory) -> None:
    for message, turn in zip(trajectory.messages, turns_of(trajectory), strict=True):
        texts = [IMAGE if part["kind"] == "picture" else part["text"] for part in turn["parts"]]
        assert "".join(texts) == message.content


@settings(max_examples=40)
@given(trajectories())
def test_every_call_belongs_to_one_turn_of_the_policy(trajectory: Trajectory) -> None:
    turns = turns_of(trajectory)
    found = [k for turn in turns for k in turn["calls"]]
    assert sorted(found) == (
        list(range(len(trajectory.calls))) if any(t["by"] == "policy" for t in turns) else []
    )
    assert all(turn["by"] == "policy" for turn in turns if turn["calls"])


def test_calls_are_placed_by_tokens_and_pictures() -> None:
    first = Message("assistant", "<code>a</code>")
    second = replace(
        LOOKED, messages=(*LOOKED.messages[:2], first, Message("user", "out"), *LOOKED.messages[2:])
    )
    spans = replace(second.calls[0], span=(7, 8))
    masked = replace(second, loss_mask=(True, False, True, False, False, False, False, True), calls=(spans,))
    assert [turn["calls"] for turn in turns_of(second)] == [[], [], [], [], [0], [], []]
    assert [turn["calls"] for turn in turns_of(masked)] == [[], [], [], [], [], [], [0]]


def test_a_document_shows_rewards_and_pictures(tmp_path: Path) -> None:
    found = documented(tmp_path, LOOKED)
    assert (found["key"], found["step"], found["right"], found["advantage"]) == (
        "step-000003/0",
        3,
        True,
        0.5,
    )
    assert found["pictures"][0] == {"origin": "input", "seen": None, "width": 64, "height": 48, "problem": ""}
    (call,) = found["calls"]
    assert call["crops"] == [{"picture": 0, "box": [8.0, 8.0, 24.0, 20.0], "shown": 1, "look": "verified"}]
    assert (call["code"], call["advantage"]) == ("image.crop((8, 8, 24, 20))", 0.75)
    json.dumps(found, allow_nan=False)


def test_a_long_text_keeps_its_beginning_and_end() -> None:
    cut = shortened({"a": ["x" * 10_000_000 + "end"]})["a"][0]
    assert len(cut) < LONGEST + 100
    assert cut.endswith("end")
    assert f"{10_000_003 - LONGEST} characters are left out" in cut


def test_pictures_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(LOOKED.images[0].data or b"")
    run = make_run(tmp_path / "run", {})
    place = Place(run, "run", "run")
    (run / "trajectories").mkdir()
    (run / "inside.png").write_bytes(b"mine")
    assert picture_bytes(Picture(path="../inside.png"), run / "trajectories" / "x.parquet", place) == b"mine"
    (run / "link.png").symlink_to(tmp_path / "secret.png")
    for path in ("../../secret.png", str(tmp_path / "secret.png"), "../link.png", "a\0b"):
        with pytest.raises(DataError):
            picture_bytes(Picture(path=path), run / "trajectories" / "x.parquet", place)
    shown = documented(run, replace(LOOKED, images=(Picture(path="../../secret.png"), LOOKED.images[1])))
    assert "leads out of" in shown["pictures"][0]["problem"]


def test_a_broken_picture_is_reported_in_its_place(tmp_path: Path) -> None:
    bomb = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\x00\x01\x00\x00" * 2 + b"\x08\x02\0\0\0" + b"\0" * 4
    shown = documented(tmp_path, replace(LOOKED, images=(Picture(data=bomb), Picture(data=b"<svg>"))))
    assert [bool(one["problem"]) for one in shown["pictures"]] == [True, True]


def test_the_terminal_shows_boxes_and_no_control_characters(tmp_path: Path) -> None:
    asked = {"ground_truth": "4", "verifier": "exact", "verifier_parm": {}, "choices": [], "evidence": [
        {"label": "sign", "picture": 0, "box": [40, 24, 60, 40]}]}  # fmt: skip
    text = printed(render_trajectory(documented(tmp_path, MISSED, asked)))
    for line in (
        "picture 0 (input): 64 x 48 px",
        "red flags: whole_image",
        "stopped by: length",
        "call 0: python",
    ):
        assert line in text
    assert "0───" in text
    assert "*───" in text


def detecting(answer: str, **more: object) -> tuple[Trajectory, dict[str, object]]:
    """A detection trajectory in thousandths of a 64 x 48 px picture, as in V-Triune, and its sample."""
    truth = [
        {"label": "sign", "bbox_2d": [125, 250, 500, 750]},
        {"label": "cup", "bbox_2d": [750, 0, 1000, 500]},
    ]
    asked = {"ground_truth": json.dumps(truth), "verifier": "detection", "choices": [], "evidence": [],
             "verifier_parm": {"space": "relative_1000"}, **more}  # fmt: skip
    said = (*LOOKED.messages[:-1], Message("assistant", f"<answer>{answer}</answer>"))
    return replace(LOOKED, messages=said), asked


def test_boxes_of_truth_and_answer_are_on_the_first_picture(tmp_path: Path) -> None:
    answer = [
        {"label": "sign", "bbox_2d": [125, 250, 500, 625]},
        {"label": "cup", "bbox_2d": [0, 900, 99, 999]},
    ]
    boxes = documented(tmp_path, *detecting(json.dumps(answer)))["boxes"]
    assert boxes["truth"] == [
        {"label": "sign", "box": [8.0, 12.0, 32.0, 36.0]},
        {"label": "cup", "box": [48.0, 0.0, 64.0, 24.0]},
    ]
    first, second = boxes["answer"]
    assert first == {"label": "sign", "box": [8.0, 12.0, 32.0, 30.0], "iou": 0.75, "meets": "sign"}
    assert (second["iou"], second["meets"]) == (0.0, None)


@pytest.mark.parametrize(
    ("answer", "more"), [("none", {}), ("[1, 2, 3, 4]", {"verifier": "exact"}), ("[1, 2, 3]", {})]
)
def test_an_answer_without_boxes_has_none_drawn(answer: str, more: dict[str, object], tmp_path: Path) -> None:
    assert documented(tmp_path, *detecting(answer, **more))["boxes"]["answer"] == []


def test_the_terminal_shows_what_was_asked_and_answered(tmp_path: Path) -> None:
    answer = '[{"label": "sign", "bbox_2d": [125, 250, 500, 625]}]'
    text = printed(render_trajectory(documented(tmp_path, *detecting(answer))))
    assert "t───" in text
    assert "a───" in text
    assert "t: ground truth; a: answer; 0-9: what that call showed" in text
    assert "answered sign [8, 12, 32, 30]: IoU 0.75 with sign" in text


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("(500, 750)", "answered (32, 36): in sign"),  # its corner
        ("(501, 751)", "answered (32.1, 36): outside every box"),
        ("[130, 260, 140, 270]", "answered [8.3, 12.5, 9, 13]: IoU"),
        ("[0, 900, 99, 999]", "answered [0, 43.2, 6.3, 48]: overlaps no box"),
    ],
)
def test_the_terminal_shows_how_an_answer_overlaps_the_truth(answer: str, line: str, tmp_path: Path) -> None:
    verifier = "point_in_box" if answer.startswith("(") else "grounding"
    document = documented(tmp_path, *detecting(answer, verifier=verifier))
    assert line in printed(render_trajectory(document))


def test_an_answer_outside_the_picture_is_not_on_the_sketch(tmp_path: Path) -> None:
    answer = '[{"label": "sign", "bbox_2d": [1500, 1500, 1600, 1600]}]'
    text = printed(render_trajectory(documented(tmp_path, *detecting(answer))))
    assert "a: answer" not in text
    assert "answered sign [96, 72, 102.4, 76.8]: overlaps no box" in text


def label(key: str, said: str | None) -> Label:
    return Label(key=key, sample_id="s", source="lens", rollout=0, label=said)  # type: ignore[arg-type]


def test_the_last_label_of_a_trajectory_counts(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    assert read_labels(file) == {}
    for key, said in (("a/0", "right"), ("a/1", "box wrong"), ("a/0", "judge erred"), ("a/1", None)):
        append_label(file, label(key, said))
    assert {key: one.label for key, one in read_labels(file).items()} == {"a/0": "judge erred"}
    with file.open("a", encoding="utf-8") as stream:
        stream.write('{"key": "half')
    assert len(read_labels(file)) == 1


NO_LABEL = {"key": "a", "sample_id": "s", "source": "x", "rollout": 0, "label": "great"}


@pytest.mark.parametrize("line", ["[]", "{}", '{"key": 1}', "nonsense", json.dumps(NO_LABEL)])
def test_an_invalid_label_line_is_reported(tmp_path: Path, line: str) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"not a label"):
        read_labels(file)


def test_a_label_that_does_not_fit_on_the_disk_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    append_label(file, label("a/0", "right"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            append_label(file, label("a/1", "right"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append_label(file, label("a/2", "wrong"))
    assert {key: one.label for key, one in read_labels(file).items()} == {"a/0": "right", "a/2": "wrong"}


def test_a_label_truncated_by_a_kill_does_not_corrupt_the_next(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    append_label(file, label("a/0", "right"))
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"key": "a/1", "sam')
    append_label(file, label("a/2", "wrong"))
    assert {key: one.label for key, one in read_labels(file).items()} == {"a/0": "right", "a/2": "wrong"}
