"""`vtune eval` on detection sets: a scripted policy, compared with pycocotools on the same boxes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vtune.runs.agent.engines as vtune_engines
from tests.data.formats.published import jpeg
from tests.metrics.detections import summary
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import setting, vtune
from tests.runs.evaluate.rereading import reread
from vtune.config import find, load_recipe
from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Request
from vtune.runs.evaluate.evaluation import EvalSuite
from vtune.runs.evaluate.questions import read_records
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.schema.sample import Sample

SMALL = setting(
    dtype="float32",
    threads=1,
    images__min_pixels=784,
    images__max_pixels=12544,
    rollout__max_tokens=4000,
    rollout__max_new_tokens=300,
    rollout__max_batch=4,
)
SIZE = (200, 100)
SHIFT = 10
HABITS = "rsdn"
"""One letter per picture: r gives all boxes, s shifts them by 10 px, d repeats each, n is unreadable."""


class Detecting(ScriptedEngine):
    """Follows HABITS over the questions, in order."""

    shown = SIZE
    """The picture size in whose pixels it gives its boxes."""

    def __init__(self, chat: Chat, samples: Sequence[Sample]) -> None:
        super().__init__(chat, ["never said"])
        self._samples = samples

    async def generate(self, request: Request) -> Completion:
        number = request.key[-3]
        boxes = said(json.loads(self._samples[number].ground_truth), HABITS[number % len(HABITS)])
        across, down = self.shown[0] / SIZE[0], self.shown[1] / SIZE[1]
        for box in boxes or ():
            x0, y0, x1, y1 = box["bbox_2d"]
            box["bbox_2d"] = [x0 * across, y0 * down, x1 * across, y1 * down]
        answer = "I see none." if boxes is None else json.dumps(boxes)
        text = f"<think>So it is.</think><answer>{answer}</answer>"
        return await ScriptedEngine(self._chat, [text]).generate(request)


def said(truth: list[dict[str, Any]], habit: str) -> list[dict[str, Any]] | None:
    if habit == "n":
        return None
    move = SHIFT if habit == "s" else 0
    boxes = [
        {"bbox_2d": [x0 + move, y0, x1 + move, y1], "label": one["label"].upper()}
        for one in truth
        for x0, y0, x1, y1 in [one["bbox_2d"]]
    ]
    return [dict(box) for box in boxes * (2 if habit == "d" else 1)]


def content(names: Sequence[str]) -> dict[str, Any]:
    """Eight pictures with one to three objects each."""
    annotations: list[dict[str, Any]] = []
    for picture in range(1, 9):
        for number in range(1 + picture % 3):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": picture,
                    "category_id": (picture + number) % len(names),
                    "bbox": [10 + 50 * number, 10, 40, 30 + picture],
                    "area": 40 * (30 + picture),
                    "iscrowd": 0,
                }
            )
    return {
        "images": [
            {"id": n, "file_name": f"{n}.jpg", "width": SIZE[0], "height": SIZE[1]} for n in range(1, 9)
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(names)],
        "annotations": annotations,
    }


def wanted(published: dict[str, Any]) -> dict[str, float]:
    """The results file of `Detecting`, written by hand, and its score from pycocotools."""
    rows = []
    for number, image in enumerate(published["images"]):
        boxes = [entry for entry in published["annotations"] if entry["image_id"] == image["id"]]
        habit = HABITS[number % len(HABITS)]
        for one in boxes * {"r": 1, "s": 1, "d": 2, "n": 0}[habit]:
            x, y, width, height = one["bbox"]
            rows.append(
                {
                    "image_id": image["id"],
                    "category_id": one["category_id"],
                    "bbox": [x + SHIFT * (habit == "s"), y, width, height],
                    "score": width * height / (SIZE[0] * SIZE[1]),
                }
            )
    return summary(published, rows)


def evaluated(
    suite: str, data: Path, tiny: Path, out: Path, patch: pytest.MonkeyPatch, *more: str
) -> dict[str, Any]:
    shipped = load_recipe(find(suite, "eval_suites"), EvalSuite, [f"data=[{data}]"])
    samples = list(read_records(shipped))
    patch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Detecting(policy.chat, samples))
    words = ["eval", "--suite", suite, "--model", str(tiny), "--data", str(data), "--out", str(out)]
    ended = vtune(*words, *SMALL, *more, "--json")
    assert ended.code == 0, ended.err
    # pycocotools prints its progress; stdout must hold only the result.
    found: dict[str, Any] = json.loads(ended.out)
    return found


@pytest.mark.parametrize("protocol", ["vtune", "official"])
def test_coco_val_scores_the_boxes_of_all_replies_like_pycocotools(
    protocol: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = content(["cup", "pen", "dog"])
    (tmp_path / "images").mkdir()
    for image in published["images"]:
        (tmp_path / "images" / image["file_name"]).write_bytes(jpeg(image["id"], SIZE))
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(published))
    found = evaluated("coco-val", file, tiny, tmp_path / "out", monkeypatch, "--protocol", protocol)
    expected = wanted(published)
    score = found["score"]
    assert score["score"] == pytest.approx(expected.pop("ap"), abs=1e-9)
    assert {name: score[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert 0 < score["score"] < 1
    assert (score["n"], score["unreadable"], score["unscored"]) == (8, 2, 0)
    single = sum(1 + n % 3 == 1 for n in range(1, 9))
    assert {name: part["n"] for name, part in score["categories"].items()} == {
        "single": single,
        "multiple": 8 - single,
    }
    assert set(found["sources"]) == {"coco", "all"}
    assert found["sources"]["coco"]["iou@50"] > 0
    report = vtune("report", str(tmp_path / "out"))
    assert report.code == 0
    assert "confidences.area_ratio" in report.out


@pytest.mark.parametrize("protocol", ["vtune", "paper"])
def test_ovdeval_scores_each_subset_and_their_mean(
    protocol: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["red cup", "blue cup"]
    published = content(names)
    for image in published["images"]:
        there = {e["category_id"] for e in published["annotations"] if e["image_id"] == image["id"]}
        image["text"] = [names[kind] for kind in there]
        image["neg_text"] = [name for kind, name in enumerate(names) if kind not in there]
    (tmp_path / "annotations").mkdir()
    for subset in ("color", "material"):
        (tmp_path / "images" / subset).mkdir(parents=True)
        (tmp_path / "annotations" / f"{subset}.json").write_text(json.dumps(published))
        for image in published["images"]:
            (tmp_path / "images" / subset / image["file_name"]).write_bytes(jpeg(image["id"], SIZE))
    words = ("--protocol", protocol)
    found = evaluated("ovdeval", tmp_path, tiny, tmp_path / "out", monkeypatch, *words)["score"]
    # Boxes do not overlap, so only doubles are rivals: all but one of each are removed.
    no_doubles = wanted(published)
    assert set(found["categories"]) == {"color", "material"}
    assert found["categories"]["color"]["score"] == pytest.approx(found["categories"]["material"]["score"])
    assert found["score"] == pytest.approx(found["categories"]["color"]["score"], abs=1e-9)
    assert found["score"] >= no_doubles["ap"] - 1e-9
    assert (found["n"], found["unreadable"]) == (16, 4)


def test_replies_in_shown_pixels_are_converted_to_file_pixels(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 400 x 200 picture is shown smaller, so the same numbers mean other places."""
    published = content(["cup"])
    (tmp_path / "images").mkdir()
    for image in published["images"]:
        (tmp_path / "images" / image["file_name"]).write_bytes(jpeg(image["id"], SIZE))
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(published))
    plain = evaluated("coco-val", file, tiny, tmp_path / "plain", monkeypatch)["score"]
    shown = evaluated(
        "coco-val", file, tiny, tmp_path / "shown", monkeypatch, "--set", "reply_space=shown_pixels"
    )["score"]
    assert shown["score"] < plain["score"]
    thousandths = evaluated(
        "coco-val", file, tiny, tmp_path / "rel", monkeypatch, "--set", "reply_space=relative_1000"
    )["score"]
    assert thousandths["score"] < 0.1 < plain["score"]


def test_stored_replies_in_shown_pixels_are_converted_to_file_pixels(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = content(["cup"])
    (tmp_path / "images").mkdir()
    for image in published["images"]:
        (tmp_path / "images" / image["file_name"]).write_bytes(jpeg(image["id"], SIZE))
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(published))
    words = ["--set", "reply_space=shown_pixels"]
    monkeypatch.setattr(Detecting, "shown", (140, 56))  # of 200 x 100, in multiples of 28, below 12544 pixels
    drawn = evaluated("coco-val", file, tiny, tmp_path / "out", monkeypatch, *words)
    # Boxes that are taken as pixels of the file match nothing: 0.
    assert drawn["score"]["score"] > 0.3
    again = reread(tmp_path / "out", "vtune")
    assert (again.score, again.items) == (drawn["score"]["score"], 0)
    stored = tmp_path / "out" / "trajectories.parquet"
    unknown = [
        replace(t, images=tuple(replace(picture, seen=None) for picture in t.images))
        for t in read_trajectories(stored)
    ]
    write_trajectories(stored, unknown, run=tmp_path / "out")
    assert "its size was not kept" in reread(tmp_path / "out", "vtune").why
