import json
import random
import re
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import vtune.runs.agent.engines as engines
import vtune.runs.agent.opening as opening
import vtune.runs.curate.curation as curation
from tests.conftest import HANGS, ROOT
from tests.curate.build import png, sample
from tests.judge.server import FakeJudge, serve
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import environment, in_fork, vtune
from tests.runs.dice import Dice, rollouts
from vtune.config import dump_recipe, load_recipe, shipped
from vtune.data.coco import coco_samples
from vtune.errors import RecipeError, ServiceError
from vtune.runs.curate.recipe import DataRecipe, PassRate
from vtune.runs.curate.workers import looking
from vtune.runs.evaluate.suite import EvalSuite
from vtune.sandbox.forkserver import ForkServer
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import read_samples, read_trajectories, write_samples
from vtune.schema.sample import Sample
from vtune.uses import forget, used

MADE = ("samples.parquet", "drops.jsonl", "page.html", "recipe.yaml", "curation.json")


def source(*files: Path, **changes: Any) -> dict[str, Any]:
    plain = {"files": [str(file) for file in files], "data_source": None, "sample": None, "published": None}
    return plain | changes


def write_recipe(path: Path, sources: dict[str, Any], filters: list[Any], **changes: Any) -> Path:
    recipe = {
        "records": "samples",
        "seed": 0,
        "sources": sources,
        "filters": filters,
        "mix": {"caps": {}, "repeat": {}},
    }
    path.write_text(yaml.safe_dump(recipe | changes, sort_keys=False))
    return path


def pass_rate(model: Path, **changes: Any) -> dict[str, Any]:
    """The tiny recipe's section, for another model and with one thread."""
    found = load_recipe(shipped("data_recipes")["orsta-47k-tiny"], DataRecipe)
    (spec,) = [spec for spec in found.filters if isinstance(spec, PassRate)]
    return spec.model_dump(mode="json") | {"model": str(model), "threads": 1} | changes


def curate(recipe: Path, out: Path, *more: str) -> dict[str, Any]:
    ended = vtune("curate", recipe, "--out", out, "--json", *more)
    assert ended.code == 0, ended.err
    document: dict[str, Any] = json.loads(ended.out)
    return document


def drops(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "drops.jsonl").read_text().splitlines()]


def made(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in MADE}


@pytest.fixture
def dice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace the model's engine with `Dice`; return the file that logs its turns."""
    log = tmp_path / "drawn.txt"
    monkeypatch.setattr(engines, "TransformersEngine", lambda policy, **_: Dice(policy, log))
    return log


def test_a_row_whose_prompt_ends_with_the_answer_is_dropped(tmp_path: Path) -> None:
    good, odd = numbered(2)
    odd = replace(odd, prompt=(*odd.prompt, Message("assistant", "<answer>2</answer>")))
    write_samples(tmp_path / "a.parquet", [good, odd])
    curate(
        write_recipe(tmp_path / "recipe.yaml", {"a": source(tmp_path / "a.parquet")}, []), tmp_path / "out"
    )
    assert [row.id for row in read_samples(tmp_path / "out" / "samples.parquet")] == [good.id]
    (dropped,) = drops(tmp_path / "out")
    assert "ends with the assistant's turn" in dropped["reason"]


def numbered(count: int, **changes: Any) -> Iterator[Sample]:
    for number in range(count):
        yield sample(f"How much is {number} and 1?", str(number + 1), id=f"n/{number}", **changes)


def coco_boxes(folder: Path) -> Iterator[Sample]:
    """Each photograph of an annotated folder as a detection question, in pixels."""
    content = json.loads((folder / "instances.json").read_text())
    names = {entry["id"]: entry["name"] for entry in content["categories"]}
    for photo in content["images"]:
        boxes = [
            {"label": names[a["category_id"]], "bbox_2d": [x, y, x + w, y + h]}
            for a in content["annotations"]
            if a["image_id"] == photo["id"] and not a["iscrowd"]
            for x, y, w, h in [a["bbox"]]
        ]
        if boxes:
            yield sample(
                "Detect everything.",
                json.dumps(boxes),
                id=f"coco_boxes/{photo['id']}",
                ability="detection",
                verifier="detection",
                verifier_parm={"space": "pixels", "width": photo["width"], "height": photo["height"]},
                pictures=((folder / "images" / photo["file_name"]).read_bytes(),),
            )


def photographs_and_puzzles(tiny: Path, lens: Path, coco_mini: Path, folder: Path) -> Path:
    """A data recipe over boxes and counts of photographs, and over puzzles, two of which are held out."""
    boxes, counts = folder / "boxes.parquet", folder / "counts.parquet"
    write_samples(boxes, coco_boxes(coco_mini))
    write_samples(
        counts, coco_samples(coco_mini / "instances.json", coco_mini / "images", limit=None, seed=0)
    )
    held = list(read_samples(lens / "heldout.parquet"))
    leaked = folder / "leaked.parquet"
    write_samples(leaked, (replace(row, id=f"leak/{n}") for n, row in enumerate(held[:2])))
    return write_recipe(
        folder / "mix.yaml",
        {
            "lens": source(lens / "train.parquet", leaked),
            "boxes": source(boxes, published=[26, 4]),
            "counts": source(counts, data_source="coco_count", sample=60),
        },
        [
            {"filter": "boxes_per_category", "rows": ["detection"], "at_most": 10},
            {"filter": "box_share", "rows": ["boxes"], "at_most": 0.5},
            {"filter": "singles_to_multis", "rows": ["detection"], "singles": 1, "multis": 2},
            {"filter": "balance", "rows": ["counts"], "by": "ground_truth", "times_median": 1.5},
            {
                "filter": "contamination",
                "rows": "all",
                "suites": [],
                "data": [str(lens / "heldout.parquet")],
                "image_distance": None,
                "text_similarity": None,
            },
            pass_rate(tiny, rollouts=4, first=None),
        ],
        mix={"caps": {"counts": 10}, "repeat": {"lens": 2}},
    )


def test_the_funnel_of_photographs_and_puzzles_adds_up(
    tiny: Path, lens: Path, coco_mini: Path, tmp_path: Path, dice: Path
) -> None:
    recipe = photographs_and_puzzles(tiny, lens, coco_mini, tmp_path)
    out = tmp_path / "out"
    result = curate(recipe, out)
    table = result["funnel"]
    columns = list(table["all"])
    assert columns == [
        "before",
        "sampled",
        "valid",
        "boxes_per_category",
        "box_share",
        "singles_to_multis",
        "balance",
        "contamination",
        "pass_rate",
        "mix",
        "after",
    ]
    assert (table["lens"]["before"], table["lens"]["contamination"]) == (18, 16)
    assert table["counts"]["before"] > table["counts"]["sampled"] == 60 > table["counts"]["balance"]
    assert table["boxes"]["before"] > table["boxes"]["box_share"] > table["boxes"]["singles_to_multis"] > 0
    assert table["boxes"]["pass_rate"] == table["boxes"]["singles_to_multis"]
    assert (table["counts"]["mix"], table["lens"]["after"]) == (10, 2 * table["lens"]["mix"])
    rows = list(read_samples(out / "samples.parquet"))
    by_source = Counter(row.source for row in rows)
    assert dict(by_source) == {name: row["after"] for name, row in table.items() if name != "all"}
    assert sum(by_source.values()) == table["all"]["after"]

    told = drops(out)
    assert all(row["reason"] for row in told)
    for name in ("lens", "boxes", "counts"):
        gone = Counter(row["filter"] for row in told if row["source"] == name)
        for before, column in pairwise(columns[1:-1]):
            assert gone[column] == table[name][before] - table[name][column]
    rates = [row.extra["pass_rate"] for row in rows if row.source == "lens"]
    assert rates
    assert all(0 < rate < 1 for rate in rates)
    # Lens puzzles offer a tool, so every rollout looked first.
    assert len(rollouts(dice)) == 16 * 4
    assert result["published"] == {"boxes": [26, 4]}
    page = (out / "page.html").read_text()
    assert page.count("data:image/jpeg;base64,") > 8
    assert "http" not in page.replace("http://www.w3.org", "")


def test_after_sigkill_the_output_is_identical_and_no_finished_rollout_is_repeated(
    tiny: Path, lens: Path, tmp_path: Path, dice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_recipe(
        tmp_path / "r.yaml",
        {"lens": source(lens / "train.parquet")},
        [pass_rate(tiny, first={"rollouts": 2, "easy": 1.0, "hard": None})],
        mix={"caps": {}, "repeat": {"lens": 2}},
    )
    whole = tmp_path / "whole"
    curate(recipe, whole)
    everything = rollouts(dice)
    assert len(everything) == len(set(everything)) > 64

    out, first, second = tmp_path / "killed", tmp_path / "first.txt", tmp_path / "second.txt"
    kept = out / "results" / "replies.jsonl"
    said = tmp_path / "said.txt"
    slowly = partial(Dice, log=first, seconds=0.02)
    monkeypatch.setattr(engines, "TransformersEngine", lambda policy, **_: slowly(policy))
    process = in_fork(said, lambda: vtune("curate", recipe, "--out", out, "--json"))
    try:
        deadline = time.monotonic() + HANGS
        while not kept.exists() or len(kept.read_bytes().splitlines()) < 40:
            assert process.is_alive(), said.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.join()
    finished = kept.read_bytes().count(b"\n")
    assert 0 < finished < len(everything)
    assert not (out / "samples.parquet").exists()
    assert not (out / "drops.jsonl").exists()

    monkeypatch.setattr(engines, "TransformersEngine", lambda policy, **_: Dice(policy, second))
    curate(recipe, out)
    again = rollouts(second)
    assert len(again) == len(set(again)) == len(everything) - finished
    assert set(rollouts(first)) | set(again) == set(everything)
    assert made(out) == made(whole)


def test_a_second_run_and_a_new_band_generate_nothing(
    tiny: Path, lens: Path, tmp_path: Path, dice: Path
) -> None:
    sources = {"lens": source(lens / "train.parquet")}
    recipe = write_recipe(tmp_path / "r.yaml", sources, [pass_rate(tiny, rollouts=2, first=None)])
    out = tmp_path / "out"
    first = curate(recipe, out)
    before, drawn = made(out), dice.read_bytes()
    stamps = {name: (out / name).stat().st_mtime_ns for name in MADE}
    assert curate(recipe, out) == first
    assert {name: (out / name).stat().st_mtime_ns for name in MADE} == stamps
    (out / "samples.parquet").unlink()
    curate(recipe, out)
    assert made(out) == before
    changed = pass_rate(tiny, rollouts=2, first=None, band={"of": "mean", "at_most": 0.4})
    other = curate(write_recipe(tmp_path / "r.yaml", sources, [changed]), out)
    assert other["funnel"] != first["funnel"]
    assert dice.read_bytes() == drawn


def test_a_cached_reply_is_used_only_for_the_same_request(
    tiny: Path, lens: Path, tmp_path: Path, dice: Path
) -> None:
    """A prompt asks for what a verifier reads."""
    sources = {"lens": source(lens / "train.parquet")}
    out, drawn = tmp_path / "out", [0]
    band = {"of": "mean", "at_least": 0.0}
    for parm in ({}, {"answer_in": "boxed"}, {}, {"aliases": ["none"]}):
        spec = pass_rate(tiny, tools=False, rollouts=1, first=None, band=band, verifier_parm=parm)
        spec["rollout"] |= {"prompt": "pool"}  # `plain` does not ask for a form
        curate(write_recipe(tmp_path / "r.yaml", sources, [spec]), out)
        drawn.append(len(rollouts(dice)))
    assert drawn == [0, 16, 32, 32, 32]


def test_a_first_pass_without_tools_saves_rollouts(
    tiny: Path, lens: Path, tmp_path: Path, dice: Path
) -> None:
    sources = {"lens": source(lens / "train.parquet")}
    spec = pass_rate(tiny, rollouts=6, first={"rollouts": 2, "easy": 0.5, "hard": 0.0})
    recipe = write_recipe(tmp_path / "r.yaml", sources, [spec | {"band": {"of": "mean", "at_most": 1.0}}])
    ended = vtune("curate", recipe, "--out", tmp_path / "out", "--json")
    # Every sample is at one of the two ends after two rollouts, so the other six are never generated.
    assert ended.code == 1
    assert "no rows are left" in ended.err
    assert len(rollouts(dice)) == 32
    reasons = [row["reason"] for row in drops(tmp_path / "out")]
    assert all("without tools" in reason for reason in reasons)


def test_rollouts_that_no_longer_matter_are_not_drawn(
    tiny: Path, lens: Path, tmp_path: Path, dice: Path
) -> None:
    sources = {"lens": source(lens / "train.parquet")}
    found = {}
    for name, first in (("all", None), ("few", {"rollouts": 4, "easy": None, "hard": None})):
        before = len(rollouts(dice))
        spec = pass_rate(tiny, tools=False, rollouts=8, first=first)
        curate(write_recipe(tmp_path / f"{name}.yaml", sources, [spec]), tmp_path / name)
        ids = [row.id for row in read_samples(tmp_path / name / "samples.parquet")]
        found[name] = (ids, len(rollouts(dice)) - before)
    assert found["few"][0] == found["all"][0]
    assert found["all"][1] == 16 * 8 > found["few"][1] > 16 * 4


def test_the_model_itself_draws_and_is_not_loaded_for_what_is_kept(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tmp_path / "few.parquet"
    write_samples(few, islice(read_samples(lens / "train.parquet"), 3))
    spec = pass_rate(tiny, rollouts=2, first=None, band={"of": "mean", "at_most": 1.0})
    recipe = write_recipe(tmp_path / "r.yaml", {"lens": source(few)}, [spec])
    curate(recipe, tmp_path / "out")
    before = made(tmp_path / "out")
    assert len((tmp_path / "out" / "results" / "replies.jsonl").read_text().splitlines()) == 6
    (tmp_path / "out" / "drops.jsonl").unlink()
    monkeypatch.setattr(opening, "load_policy", None)
    curate(recipe, tmp_path / "out")
    assert made(tmp_path / "out") == before


FLAT = """
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS, Case, Verifier

def verify(reply, sample):
    return Verdict(1.0, "as ever")

case = Case("a", "", "b")
VERIFIERS.add("flat", Verifier(verify, lambda _: None, lambda _: "any", case, partial_credit=True))
"""


def test_scores_by_a_verifier_of_the_users_own_are_kept_only_while_its_file_stays_the_same(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = ["<think>So.</think><answer>a pair</answer>"]
    monkeypatch.setattr(engines, "TransformersEngine", lambda policy, **_: ScriptedEngine(policy.chat, says))
    data, mine, out = tmp_path / "n.parquet", tmp_path / "flat.py", tmp_path / "out"
    write_samples(data, [sample("How many shoes?", "two", verifier="flat", pictures=(png((60, 60)),))])
    spec = pass_rate(tiny, rollouts=1, first=None, tools=False, band={"of": "mean", "at_most": 1.0})
    recipe = write_recipe(
        tmp_path / "r.yaml", {"n": source(data)}, [spec | {"rows": "all"}], uses=["flat.py"]
    )
    for score in (1.0, 0.25):
        mine.write_text(FLAT.replace("1.0", str(score)))
        try:
            curate(recipe, out)
        finally:
            forget(used())
        (row,) = read_samples(out / "samples.parquet")
        assert row.extra["pass_rate"] == score
    assert len((out / "results" / "replies.jsonl").read_text().splitlines()) == 1


def endpoint(judge: FakeJudge, **changes: Any) -> dict[str, Any]:
    return judge.endpoint(concurrency=1, retries=0, **changes).model_dump(mode="json")


def test_a_pass_rate_asks_the_judge_about_free_answers(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = ["<think>So.</think><answer>a pair</answer>"]
    monkeypatch.setattr(engines, "TransformersEngine", lambda policy, **_: ScriptedEngine(policy.chat, says))
    data = tmp_path / "n.parquet"
    write_samples(data, [sample("How many shoes?", "two", verifier="judge", pictures=(png((60, 60)),))])
    with serve("TRUE", "VISUAL", greets=True) as judge:
        spec = pass_rate(tiny, rollouts=2, first=None, tools=False, band={"of": "mean", "at_least": 1.0})
        spec |= {"rows": "all", "judge": endpoint(judge)}
        out = tmp_path / "out"
        curate(write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec]), out)
        # Both rollouts say the same, which is asked only once.
        assert len(judge.requests) == 1
    (row,) = read_samples(out / "samples.parquet")
    assert row.extra["pass_rate"] == 1.0


def test_a_broken_picture_costs_its_row_and_a_tool_that_nobody_can_run_stops(
    tiny: Path, lens: Path, tmp_path: Path, dice: Path
) -> None:
    (good, other) = islice(read_samples(lens / "train.parquet"), 2)
    cut = replace(good.images[0], data=(good.images[0].data or b"")[:2000])
    data = tmp_path / "n.parquet"
    write_samples(data, [good, replace(other, images=(cut,))])
    spec = pass_rate(tiny, rollouts=1, first=None, band={"of": "mean", "at_most": 1.0})
    recipe = write_recipe(tmp_path / "r.yaml", {"lens": source(data)}, [spec])
    curate(recipe, tmp_path / "out")
    assert [row.id for row in read_samples(tmp_path / "out" / "samples.parquet")] == [good.id]
    assert "cannot be decoded" in drops(tmp_path / "out")[0]["reason"]
    before = rollouts(dice)
    write_samples(data, [good, replace(other, tools=("image_zoom_in_tool",))])
    ended = vtune("curate", recipe, "--out", tmp_path / "other")
    assert ended.code == 2
    assert "offers image_zoom_in_tool, but no section tools.zoom says how to run it" in ended.err
    assert rollouts(dice) == before, "the first row was drawn before the second was refused"


ZOOM = {"zoom": {"space": "relative_1000", "min_side": 28}}
LOOKS = (
    "<think>I look.</think>"
    '<tool_call>{"name": "image_zoom_in_tool", "arguments": {"bbox_2d": [0, 0, 500, 500]}}</tool_call>'
)


def test_rollouts_call_the_tools_that_training_would(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = islice(read_samples(lens / "train.parquet"), 1)
    data = tmp_path / "n.parquet"
    write_samples(data, [replace(row, tools=("image_zoom_in_tool",))])
    script = [LOOKS, f"<think>So.</think><answer>{row.ground_truth}</answer>"]
    monkeypatch.setattr(
        engines, "TransformersEngine", lambda policy, **_: ScriptedEngine(policy.chat, script)
    )
    spec = pass_rate(tiny, rows="all", tools=ZOOM, rollouts=1, first=None)
    spec |= {"band": {"of": "mean", "at_least": 1.0}, "rollout": spec["rollout"] | {"prompt": "tools"}}
    spec["rollout"] |= {"max_tokens": 4096, "max_new_tokens": 1024}
    out = tmp_path / "out"
    curate(write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec]), out)
    (kept,) = map(json.loads, (out / "results" / "replies.jsonl").read_text().splitlines())
    assert kept["result"]["calls"] == 1
    (again,) = read_samples(out / "samples.parquet")
    assert again.extra["pass_rate"] == 1.0


def test_what_a_pass_rate_lacks_is_told_before_a_rollout_is_drawn(
    tiny: Path, coco_mini: Path, tmp_path: Path, dice: Path
) -> None:
    data = tmp_path / "n.parquet"
    boxes = next(coco_boxes(coco_mini))
    free = sample("How many?", "two", id="free", verifier="judge", pictures=(png((60, 60)),))
    for row, what in ((boxes, "needs an IoU threshold for boxes"), (free, "the filter names none")):
        write_samples(data, [sample(pictures=(png((60, 60)),)), row])
        spec = pass_rate(tiny, rows="all", rollouts=1, first=None)
        recipe = write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec])
        ended = vtune("curate", recipe, "--out", tmp_path / "out")
        assert (ended.code, rollouts(dice)) == (2, [])
        assert what in ended.err
        assert row.id in ended.err


@pytest.mark.parametrize(
    ("parm", "what"),
    [
        pytest.param({"iou": 0.5}, "verifier `choice` has no option `iou`", id="an option of others"),
        pytest.param({"letter_rule": "lose"}, "`letter_rule` is 'lose'", id="a value that is none"),
    ],
)
def test_options_that_a_verifier_does_not_read_are_told_before_a_rollout_is_drawn(
    parm: dict[str, Any], what: str, tiny: Path, tmp_path: Path, dice: Path
) -> None:
    data = tmp_path / "n.parquet"
    broken = sample(truth="Z", id="broken", verifier="choice", choices=("a", "b"), pictures=(png((60, 60)),))
    lettered = sample(
        truth="A", id="lettered", verifier="choice", choices=("a", "b"), pictures=(png((60, 60)),)
    )
    write_samples(data, [broken, lettered])
    spec = pass_rate(tiny, rows="all", rollouts=1, first=None, verifier_parm=parm)
    recipe = write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec])
    ended = vtune("curate", recipe, "--out", tmp_path / "out")
    assert (ended.code, rollouts(dice)) == (2, [])
    assert what in ended.err
    assert "lettered" in ended.err


def test_a_model_that_is_not_there_is_told_before_anything_is_written(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(2))
    spec = pass_rate(tmp_path / "no" / "model", rows="all")
    recipe = write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec])
    ended = vtune("curate", recipe, "--out", tmp_path / "out")
    assert ended.code == 2
    assert "no model folder" in ended.err
    assert not (tmp_path / "out").exists()
    plan = vtune("curate", recipe, "--dry-run", "--json")
    assert plan.code == 0
    assert "no model folder" in json.loads(plan.out)["filters"]["pass_rate"]["missing"]


def test_judges_drop_what_needs_knowledge_and_a_person_decides_about_doubted_labels(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(5))
    out = tmp_path / "out"
    says = ["VISUAL", "EXTERNAL", "VISUAL", "VISUAL", "VISUAL", "RIGHT", "WRONG", "UNSURE", "WRONG"]
    with serve(*says, greets=True) as judge:
        asks: dict[str, Any] = {"rows": "all", "judge": endpoint(judge), "max_unscored": 0.0}
        filters = [
            asks | {"filter": "external_knowledge"},
            asks | {"filter": "label_check", "unreviewed": "drop"},
        ]
        recipe = write_recipe(tmp_path / "r.yaml", {"n": source(data)}, filters)
        result = curate(recipe, out)
        assert [row["id"] for row in drops(out) if row["filter"] == "external_knowledge"] == ["n/1"]
        assert [row.id for row in read_samples(out / "samples.parquet")] == ["n/0"]
        assert result["waiting_for_review"] == 3

        lines = [json.loads(line) for line in (out / "queue.jsonl").read_text().splitlines()]
        assert [(line["id"], line["judge"]) for line in lines] == [
            ("n/2", "wrong"),
            ("n/3", "unsure"),
            ("n/4", "wrong"),
        ]
        lines[0]["decision"] = "keep"
        lines[1] |= {"decision": "fix", "corrected": " "}
        # As an editor on Windows saves it.
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (out / "queue.jsonl").write_text(text, encoding="utf-8-sig")
        assert curate(recipe, out)["waiting_for_review"] == 2
        assert "cannot be used" in next(row["reason"] for row in drops(out) if row["id"] == "n/3")
        lines = [json.loads(line) for line in (out / "queue.jsonl").read_text().splitlines()]
        lines[0] |= {"decision": "fix", "corrected": "44"}
        (out / "queue.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        again = curate(recipe, out)
        truths = {row.id: row.ground_truth for row in read_samples(out / "samples.parquet")}
        filters[1]["unreviewed"] = "keep"
        keeping = curate(write_recipe(tmp_path / "k.yaml", {"n": source(data)}, filters), out)
        assert [row.id for row in read_samples(out / "samples.parquet")][-1] == "n/4"
        assert keeping["waiting_for_review"] == 1
        assert len(judge.requests) == len(says)
    assert truths == {"n/0": "1", "n/2": "3", "n/3": "44"}
    assert again["waiting_for_review"] == 1
    assert [json.loads(line)["id"] for line in (out / "queue.jsonl").read_text().splitlines()] == ["n/4"]


def test_a_dry_run_finds_that_the_judge_does_not_answer(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(3))
    found = []
    for reply in (404, "VISUAL"):
        with serve(reply) as judge:
            spec = {
                "filter": "external_knowledge",
                "rows": "all",
                "judge": endpoint(judge),
                "max_unscored": 0.5,
            }
            recipe = write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec])
            ended = vtune("curate", recipe, "--dry-run", "--json")
        assert ended.code == 0, ended.err
        assert len(judge.requests) == 1
        found += [filtered["missing"] for filtered in json.loads(ended.out)["filters"].values()]
    assert found[0].startswith("the judge gave no reply: NotFoundError")
    assert found[1] == ""


def test_a_dry_run_counts_calls_only_for_rows_that_a_filter_checks(tmp_path: Path, tiny: Path) -> None:
    write_samples(tmp_path / "a.parquet", numbered(5))
    sums = [replace(one, id=f"sums/{one.id}") for one in numbered(3, ability="math", source="sums")]
    write_samples(tmp_path / "b.parquet", [*numbered(4, ability="chart"), *sums])
    sources = {"a": source(tmp_path / "a.parquet"), "b": source(tmp_path / "b.parquet")}
    asks: dict[str, Any] = {"filter": "external_knowledge", "max_unscored": 0.0}
    chosen: list[Any] = ["all", ["a"], ["chart"], ["a", "math"], ["b", "chart"], ["ocr"]]

    def calls(filters: list[dict[str, Any]], sources: dict[str, Any]) -> list[int]:
        recipe = write_recipe(tmp_path / "r.yaml", sources, filters)
        ended = vtune("curate", recipe, "--dry-run", "--json")
        assert ended.code == 0, ended.err
        return [one["model_calls_at_most"] for one in json.loads(ended.out)["filters"].values()]

    with serve("VISUAL") as judge:
        filters = [asks | {"judge": endpoint(judge), "rows": rows} for rows in chosen]
        assert calls(filters, sources) == [12, 5, 4, 8, 7, 0]
        sources["b"] |= {"data_source": "sums", "sample": 2}
        assert calls(filters, sources) == [7, 5, 0, 7, 2, 0]
    # The first pass is a part of all rollouts, unless those may call tools.
    rates = [pass_rate(tiny, rollouts=8, first={"rollouts": 2}, tools=tools) for tools in (False, True)]
    assert calls([one | {"rows": ["a"]} for one in rates], sources) == [40, 50]


def test_a_dry_run_reads_no_abilities_for_a_filter_that_asks_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_samples(tmp_path / "a.parquet", numbered(5, ability="chart"))
    filters = [{"filter": "box_share", "rows": ["chart"], "at_most": 0.5}]
    recipe = write_recipe(tmp_path / "r.yaml", {"a": source(tmp_path / "a.parquet")}, filters)
    monkeypatch.setattr(curation, "tally", None)
    found = curation.check_curation(load_recipe(recipe, DataRecipe))["filters"]
    assert [one["model_calls_at_most"] for one in found.values()] == [0]


def test_a_judge_that_does_not_answer_is_reported_before_reading_rows(
    tiny: Path, tmp_path: Path, dice: Path
) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(3, verifier="judge"))
    knows: dict[str, Any] = {"filter": "external_knowledge", "rows": "all", "max_unscored": 1.0}
    rates = pass_rate(tiny, rollouts=2, first=None, tools=False) | {"rows": "all"}
    for spec, what in ((knows, "external_knowledge"), (rates, "pass_rate")):
        with serve(404) as judge:
            recipe = write_recipe(
                tmp_path / "r.yaml", {"n": source(data)}, [spec | {"judge": endpoint(judge)}]
            )
            ended = vtune("curate", recipe, "--out", tmp_path / what)
        assert ended.code == 1
        assert f"filter `{what}`: the judge gave no reply: NotFoundError" in ended.err
        assert len(judge.requests) == 1
    assert not dice.exists()


def test_the_fix_for_a_refused_key_is_about_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_samples(tmp_path / "n.parquet", numbered(3))
    monkeypatch.setenv("JUDGE_KEY", "wrong")
    asks: dict[str, Any] = {"filter": "external_knowledge", "rows": "all", "max_unscored": 1.0}
    with serve(401) as judge:
        spec = asks | {"judge": endpoint(judge, api_key_env="JUDGE_KEY")}
        recipe = write_recipe(tmp_path / "r.yaml", {"n": source(tmp_path / "n.parquet")}, [spec])
        ended = vtune("curate", recipe, "--out", tmp_path / "out")
    assert ended.code == 1
    assert "fix  check the key in JUDGE_KEY, and that it may use this model; then start" in ended.err


def test_a_failing_judge_is_not_asked_about_rows_that_cannot_change_the_outcome(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(12))
    with serve(500, greets=True) as judge:
        asks: dict[str, Any] = {"rows": "all", "judge": endpoint(judge), "max_unscored": 0.25}
        recipe = write_recipe(
            tmp_path / "r.yaml", {"n": source(data)}, [asks | {"filter": "external_knowledge"}]
        )
        ended = vtune("curate", recipe, "--out", tmp_path / "out")
    assert ended.code == 1
    assert "4 of 4 rows could not be judged" in ended.err
    assert len(judge.requests) == 4


def test_an_unusable_judge_stops_the_run_and_only_unanswered_rows_are_asked_again(
    tmp_path: Path,
) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(3))
    out = tmp_path / "out"
    with serve("VISUAL", 500, 500, "VISUAL", greets=True) as judge:
        spec = {"filter": "external_knowledge", "rows": "all", "judge": endpoint(judge), "max_unscored": 0.5}
        recipe = write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec])
        ended = vtune("curate", recipe, "--out", out)
        assert ended.code == 1
        assert "2 of 3 rows could not be judged" in ended.err
        assert not (out / "samples.parquet").exists()
        curate(recipe, out)
        assert len(judge.requests) == 5


def test_unusable_rows_are_dropped_with_their_place(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_samples(first, numbered(2))
    write_samples(second, [*numbered(1), sample(id="x/0", verifier="")])
    out = tmp_path / "out"
    result = curate(
        write_recipe(tmp_path / "r.yaml", {"n": source(first), "m": source(second, first)}, []), out
    )
    assert result["funnel"]["n"]["after"] == 2
    assert [(row["row"], row["id"], row["reason"].split(" (")[0]) for row in drops(out)] == [
        (1, None, "the row names no verifier"),
        (0, "n/0", "its id is taken by an earlier row"),
        (0, "n/0", "its id is taken by an earlier row"),
        (1, "n/1", "its id is taken by an earlier row"),
    ]
    assert "`valid` dropped all that was left of `m`: 4 of its rows" in result["warnings"]
    assert "rows of m dropped because their ids are taken: 3" in result["warnings"]


def test_a_row_with_a_missing_picture_is_dropped_even_without_picture_filters(tmp_path: Path) -> None:
    rows = [
        replace(sample(id=name, pictures=(b"x",)), images=(Picture(path=name),))
        for name in ("here.png", "gone.png", "A" * 300)
    ]
    write_samples(tmp_path / "a.parquet", rows)
    (tmp_path / "here.png").write_bytes(png((8, 8)))
    out = tmp_path / "out"
    curate(write_recipe(tmp_path / "r.yaml", {"n": source(tmp_path / "a.parquet")}, []), out)
    assert [one.id for one in read_samples(out / "samples.parquet")] == ["here.png"]
    gone, no_path = drops(out)
    assert (gone["row"], gone["filter"]) == (1, "valid")
    assert gone["reason"] == f"no picture at {tmp_path / 'gone.png'}"
    assert (no_path["row"], no_path["filter"]) == (2, "valid")


def test_an_id_of_a_dropped_row_may_be_used_by_a_later_row(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_samples(first, [sample(id="0", ground_truth="a long answer"), sample(id="1", ground_truth="one")])
    write_samples(second, [sample(id="0", ground_truth="two"), sample(id="1", ground_truth="three")])
    out = tmp_path / "out"
    recipe = write_recipe(
        tmp_path / "r.yaml",
        {"n": source(first), "m": source(second)},
        [{"filter": "answer_length", "at_most": 5}],
    )
    curate(recipe, out)
    kept = {(one.source, one.id, one.ground_truth) for one in read_samples(out / "samples.parquet")}
    assert kept == {("n", "1", "one"), ("m", "0", "two")}
    assert [(row["source"], row["id"], row["filter"]) for row in drops(out)] == [
        ("n", "0", "answer_length"),
        ("m", "1", "valid"),
    ]


def test_a_persons_decision_during_a_run_counts_from_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = tmp_path / "n.parquet", tmp_path / "out"
    write_samples(data, numbered(2))
    queue, lines = out / "queue.jsonl", list[dict[str, Any]]()
    filtered = curation.filter_rows

    def meanwhile(*given: Any) -> Any:
        found = filtered(*given)
        if queue.exists() and not lines:
            lines.extend(json.loads(line) for line in queue.read_text().splitlines())
            queue.write_text(json.dumps(lines[0] | {"decision": "keep"}) + "\n" + json.dumps(lines[1]) + "\n")
        return found

    monkeypatch.setattr(curation, "filter_rows", meanwhile)
    with serve("WRONG", "WRONG", greets=True) as judge:
        spec = {"filter": "label_check", "rows": "all", "judge": endpoint(judge), "max_unscored": 0.0}
        recipe = write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec | {"unreviewed": "keep"}])
        assert curate(recipe, out)["waiting_for_review"] == 2
        (out / "samples.parquet").unlink()
        assert curate(recipe, out)["waiting_for_review"] == 1
        assert [json.loads(line)["id"] for line in queue.read_text().splitlines()] == [lines[1]["id"]]
        assert curate(recipe, out)["waiting_for_review"] == 1
        assert len(judge.requests) == 2


def test_rows_without_an_id_are_distinguished_by_source_and_file(tmp_path: Path) -> None:
    """Shards of different data sets have the same names."""
    files = [tmp_path / name / "train-0.parquet" for name in "abc"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        write_samples(file, numbered(2))
        table = pq.read_table(file)
        extra = pa.array([{"row": number}] * 2)
        place = table.schema.get_field_index("extra_info")
        pq.write_table(table.set_column(place, "extra_info", extra), file)
    sources = {"one": source(files[0]), "two": source(*files[1:])}
    result = curate(write_recipe(tmp_path / "r.yaml", sources, []), tmp_path / "out")
    ids = [row.id for row in read_samples(tmp_path / "out/samples.parquet")]
    assert {"one/train-0/0", "two/b/train-0/0", "two/c/train-0/1"} < set(ids)
    assert len(set(ids)) == 6
    assert result["warnings"] == []


def test_a_missing_held_out_file_is_a_warning(tmp_path: Path) -> None:
    data, held, lost = (tmp_path / f"{name}.parquet" for name in ("data", "held", "lost"))
    write_samples(data, numbered(3))
    write_samples(held, [sample("Something else", "1", id="held/0")])
    spec = {"filter": "contamination", "rows": "all", "suites": [], "data": [str(held), str(lost)]}
    result = curate(write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec]), tmp_path / "out")
    assert result["warnings"] == [f"`contamination` did not check {lost}: not here"]


def test_available_suites_are_excluded_and_missing_ones_reported(lens: Path, tmp_path: Path) -> None:
    held = list(read_samples(lens / "heldout.parquet"))
    for name, data in (("here", lens / "heldout.parquet"), ("missing", tmp_path / "none.parquet")):
        suite = load_recipe(shipped("eval_suites")["lens"], EvalSuite, [f"data=[{data}]"])
        (tmp_path / f"{name}.yaml").write_text(dump_recipe(suite))
    leaked = tmp_path / "leaked.parquet"
    write_samples(leaked, [replace(held[0], id="leak/0"), *read_samples(lens / "train.parquet")])
    names = [str(tmp_path / f"{name}.yaml") for name in ("here", "missing")]
    spec = {"filter": "contamination", "rows": "all", "suites": names, "data": []}
    spec |= {"image_distance": None, "text_similarity": None}
    out = tmp_path / "out"
    result = curate(write_recipe(tmp_path / "r.yaml", {"lens": source(leaked)}, [spec]), out)
    assert result["benchmarks"] == {names[0]: True, names[1]: False}
    ((told, why),) = [(row["id"], row["reason"]) for row in drops(out)]
    assert told == "leak/0"
    assert why == f"shows a picture (0 of 256 bits differ) of {held[0].id} ({names[0]})"


@pytest.mark.parametrize("name", ["duplicates", "contamination"])
def test_a_drop_names_the_other_row_by_its_id_file_and_row(tmp_path: Path, name: str) -> None:
    first, second, held = (tmp_path / f"{name}.parquet" for name in ("first", "second", "held"))
    rows = list(numbered(4))
    write_samples(first, [*rows[:1], replace(rows[3], id="bad", verifier="none"), *rows[1:3]])
    write_samples(second, [replace(rows[3], id="m/0"), replace(rows[2], id="m/1")])
    write_samples(held, [sample("Something else", "1", id="held/0"), replace(rows[2], id="held/1")])
    data = {"suites": [], "data": [str(held)]} if name == "contamination" else {}
    sources = {"first": source(first), "second": source(second)}
    recipe = write_recipe(tmp_path / "r.yaml", sources, [{"filter": "verifiable"}, {"filter": name} | data])
    curate(recipe, tmp_path / "out")
    why = [(row["id"], row["reason"]) for row in drops(tmp_path / "out") if row["filter"] == name]
    if name == "duplicates":
        assert [one for one, _ in why] == ["m/1"]
        assert why[0][1].endswith(f"the same question as n/2 ({first}, row 3)")
    else:
        assert [one for one, _ in why] == ["n/2", "m/1"]
        assert all(reason.endswith(f" of held/1 ({held}, row 1)") for _, reason in why)


def test_a_filter_that_matches_no_row_is_reported(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(2))
    spec = {"filter": "english", "rows": ["ocr"]}
    result = curate(write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [spec]), tmp_path / "out")
    assert result["warnings"] == [
        "`english` checked no row: none of the rows that reached it is what `rows` names"
    ]


def test_an_unknown_row_selection_is_refused_before_reading(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(2, ability="counting_small"))
    for name, meant in (("numbrs", "did you mean `numbers`?"), ("countingsmall", "`counting_small`?")):
        spec = {"filter": "english", "rows": ["counting_small", name]}
        recipe = write_recipe(tmp_path / "r.yaml", {"numbers": source(data)}, [spec])
        for more in ((), ("--dry-run",)):
            ended = vtune("curate", recipe, "--out", tmp_path / "out", *more)
            assert ended.code == 2
            assert f"filters.0.rows names {name!r}" in ended.err
            assert meant in ended.err
            assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("linked", [False, True], ids=["folder", "link to a folder elsewhere"])
def test_pictures_in_files_are_found_from_the_new_folder(linked: bool, tmp_path: Path) -> None:
    from vtune.schema.parquet import load_picture

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "p.png").write_bytes(png((9, 9)))
    row = replace(sample(pictures=(b"x",)), images=(Picture(path="p.png"),))
    write_samples(tmp_path / "in" / "s.parquet", [row])
    recipe = write_recipe(tmp_path / "r.yaml", {"n": source(tmp_path / "in" / "s.parquet")}, [])
    out = tmp_path / "far" / "out"
    if linked:
        (tmp_path / "disk" / "a" / "b").mkdir(parents=True)
        out.parent.mkdir()
        out.symlink_to(tmp_path / "disk" / "a" / "b")
    curate(recipe, out)
    (found,) = read_samples(out / "samples.parquet")
    assert load_picture(found.images[0], out) == png((9, 9))
    assert not Path(found.images[0].path or "/").is_absolute()


def test_rows_take_the_name_of_their_source_and_keep_the_old_one(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, [*numbered(2, source="old"), sample(id="x", source="other")])
    recipe = write_recipe(tmp_path / "r.yaml", {"new": source(data, data_source="old")}, [])
    curate(recipe, tmp_path / "out")
    rows = list(read_samples(tmp_path / "out" / "samples.parquet"))
    assert {(row.source, row.extra["data_source"]) for row in rows} == {("new", "old")}
    assert len(rows) == 2


def test_a_source_may_keep_its_data_set_names_and_set_tools(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    system = (Message("system", "Call image_zoom_in_tool."), Message("user", "Which?"))
    foreign = sample(id="x", source="a", prompt=system, tools=("image_zoom_in_tool",))
    unclear = sample("Which? Call image_zoom_in_tool.", id="y", source="b")
    write_samples(data, [foreign, unclear, *numbered(2, source="b")])
    settings = source(data, rename=False, tools=["python"])
    recipe = write_recipe(tmp_path / "r.yaml", {"new": settings}, [])
    result = curate(recipe, tmp_path / "out")
    rows = {row.id: row for row in read_samples(tmp_path / "out" / "samples.parquet")}
    assert {row.tools for row in rows.values()} == {("python",)}
    assert [turn.role for turn in rows["x"].prompt] == ["user"]
    assert result["data_sources"] == {
        "a": {"rows": 1, "share": pytest.approx(1 / 3)},
        "b": {"rows": 2, "share": pytest.approx(2 / 3)},
    }
    (dropped,) = drops(tmp_path / "out")
    assert (dropped["filter"], "mentions image_zoom_in_tool" in dropped["reason"]) == ("valid", True)


def test_no_row_keeps_a_name_reserved_by_metrics(tmp_path: Path) -> None:
    data = tmp_path / "n.parquet"
    write_samples(data, [*numbered(1, source="a"), sample("Which one?", id="x", source="all")])
    recipe = write_recipe(tmp_path / "r.yaml", {"all": source(data, rename=False)}, [])
    result = curate(recipe, tmp_path / "out")
    assert list(result["data_sources"]) == ["a"]
    (dropped,) = drops(tmp_path / "out")
    assert (dropped["filter"], "data_source 'all' is taken" in dropped["reason"]) == ("valid", True)
    with pytest.raises(RecipeError, match=r"sources\.all: metrics use this name"):
        load_recipe(write_recipe(tmp_path / "r.yaml", {"all": source(data)}, []), DataRecipe)


def test_traces_are_curated_like_samples(lens: Path, tmp_path: Path) -> None:
    spec = {"filter": "tool_rounds", "rows": "all", "at_least": 1, "at_most": 2}
    recipe = write_recipe(
        tmp_path / "r.yaml", {"lens": source(lens / "traces.parquet")}, [spec], records="traces"
    )
    result = curate(recipe, tmp_path / "out")
    looked = [trace for trace in read_trajectories(lens / "traces.parquet") if trace.calls]
    assert list(read_trajectories(tmp_path / "out" / "traces.parquet")) == looked
    assert result["funnel"]["lens"]["after"] == len(looked) < 32


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a filter for samples": (
        {"records": "traces", "filters": [{"filter": "no_guessing", "rows": "all"}]},
        "traces",
    ),
    "a filter for traces": ({"filters": [{"filter": "complete_traces", "rows": "all"}]}, "samples"),
    "a cap of no source": ({"mix": {"caps": {"x": 1}, "repeat": {}}}, "is not a source"),
    "tools of traces": (
        {"records": "traces", "sources": {"n": source(Path("n"), tools=["python"])}},
        "sources.n.tools: the tools that a trace calls cannot be changed",
    ),
    "an unknown filter": ({"filters": [{"filter": "anser_length", "rows": "all"}]}, "anser_length"),
    "an unknown key": ({"filters": [{"filter": "english", "rows": "all", "most": 1}]}, "most"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_contradictory_recipe_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    changes, what = BAD[name]
    data = tmp_path / "n.parquet"
    write_samples(data, numbered(2))
    sources = {"sources": {"n": source(data)}, "filters": []} | changes
    recipe = write_recipe(tmp_path / "r.yaml", **sources)
    ended = vtune("curate", recipe, "--out", tmp_path / "out")
    assert ended.code == 2
    assert what in ended.err
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "r.yaml", {"n": source(tmp_path / "none.parquet")}, [])
    ended = vtune("curate", recipe, "--out", tmp_path / "out")
    assert (ended.code, ended.out) == (2, "")
    assert "none.parquet" in ended.err
    assert not (tmp_path / "out").exists()
    plan = vtune("curate", recipe, "--dry-run", "--json")
    assert plan.code == 0
    assert json.loads(plan.out)["sources"]["n"]["missing"] == str(tmp_path / "none.parquet")


@pytest.mark.parametrize("name", ["samples.parquet", "page.html", "recipe.yaml", "drops.jsonl"])
def test_foreign_files_are_not_replaced(name: str, tmp_path: Path) -> None:
    data, out = tmp_path / "data.parquet", tmp_path / "out"
    write_samples(data, numbered(4))
    recipe = write_recipe(tmp_path / "mine.yaml", {"s": source(data)}, [])
    out.mkdir()
    (out / name).write_text("mine")
    (out / "notes.txt").write_text("mine, and in nobody's way")
    ended = vtune("curate", recipe, "--out", out)
    assert ended.code == 2
    assert f"{out} holds {name}, and no curation: they would be replaced" in ended.err
    assert (out / name).read_text() == "mine"
    assert {path.name for path in out.iterdir()} == {name, "notes.txt"}
    (out / name).unlink()
    assert vtune("curate", recipe, "--out", out).code == 0
    (out / "curation.json").unlink()  # as if it had been killed in between
    assert vtune("curate", recipe, "--out", out).code == 0


def test_a_curation_that_replaces_another_says_so(tmp_path: Path) -> None:
    data, out = tmp_path / "data.parquet", tmp_path / "out"
    write_samples(data, numbered(4))
    recipe = write_recipe(tmp_path / "mine.yaml", {"s": source(data)}, [])
    assert "curated with" not in vtune("curate", recipe, "--out", out).err
    other = vtune("curate", recipe, "--out", out, "--set", "seed=1", "--set", "mix.caps={s: 3}")
    assert (
        f"{out} was curated with other settings (seed, mix.caps.s); its files will be replaced" in other.err
    )
    (out / "page.html").unlink()
    again = vtune("curate", recipe, "--out", out, "--set", "seed=1", "--set", "mix.caps={s: 3}")
    assert (again.code, "replaced" in again.err) == (0, False), "the same settings: nothing of them is lost"
    (out / "recipe.yaml").write_text("{")
    broken = vtune("curate", recipe, "--out", out)
    assert (broken.code, "replaced" in broken.err) == (0, False)


def test_a_curation_without_rows_keeps_the_earlier_one(tmp_path: Path) -> None:
    write_samples(tmp_path / "a.parquet", numbered(5))
    sources = {"s": source(tmp_path / "a.parquet")}
    recipe = write_recipe(tmp_path / "r.yaml", sources, [])
    out = tmp_path / "out"
    curate(recipe, out)
    before = made(out)
    none = write_recipe(tmp_path / "none.yaml", sources, [], mix={"caps": {"s": 0}, "repeat": {}})
    ended = vtune("curate", none, "--out", out)
    assert (ended.code, "no rows are left" in ended.err) == (1, True), ended.err
    assert made(out) == before
    assert f"see {out / 'dropped-all.jsonl'} for the reasons" in ended.err
    assert len((out / "dropped-all.jsonl").read_text().splitlines()) == 5
    curate(recipe, out)
    assert made(out) == before
    assert "nothing has changed" in vtune("curate", recipe, "--out", out).err
    fresh = vtune("curate", none, "--out", tmp_path / "fresh")
    assert f"see {tmp_path / 'fresh' / 'drops.jsonl'} for the reasons" in fresh.err


def test_two_curations_in_one_folder_do_not_mix(tmp_path: Path) -> None:
    from vtune.runs.start import locked

    data = tmp_path / "n.parquet"
    write_samples(data, numbered(2))
    recipe = write_recipe(tmp_path / "r.yaml", {"n": source(data)}, [])
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"):
        ended = vtune("curate", recipe, "--out", tmp_path / "out")
    assert ended.code == 2
    assert "another process is working in" in ended.err


TINY = {"orsta-47k": "orsta-47k-tiny", "codev-rl": "codev-rl-tiny", "codev-sft": "codev-sft-tiny"} | {
    "search-4k": "search-4k-tiny"
}


@pytest.mark.parametrize("name", TINY)
def test_a_small_recipe_has_the_filters_of_the_large_one(name: str) -> None:
    large, small = (load_recipe(shipped("data_recipes")[n], DataRecipe) for n in (name, TINY[name]))
    wanted = list(dict.fromkeys(spec.filter for spec in large.filters))
    judges = {"external_knowledge", "label_check"}
    assert [spec.filter for spec in small.filters] == [kind for kind in wanted if kind not in judges]


def test_the_recipes_state_the_published_counts() -> None:
    orsta = load_recipe(shipped("data_recipes")["orsta-47k"], DataRecipe)
    assert sum(source.published[1] or 0 for source in orsta.used.values() if source.published) == 47766
    search = load_recipe(shipped("data_recipes")["search-4k"], DataRecipe)
    assert sum(source.published[1] or 0 for source in search.used.values() if source.published) == 3859


def stress(count: int) -> Iterator[Sample]:
    """Samples without pictures; each rule drops some of them."""
    rng = random.Random(0)
    truths = ["4", "x=2", "a very long answer of many words", "true", "12", "7.5"]
    for number in range(count):
        yield sample(f"How much is {number} and {rng.randrange(99)}?", rng.choice(truths), id=f"s/{number}")


RULES: list[dict[str, Any]] = [
    {"filter": "no_guessing", "rows": "all"},
    {"filter": "answer_symbols", "rows": "all", "symbols": "=[]():"},
    {"filter": "answer_length", "rows": "all", "at_most": 20},
    {"filter": "english", "rows": "all"},
]


def test_memory_hardly_grows_with_the_rows(tmp_path: Path) -> None:
    peaks = []
    for count in (60, 600, 1800):  # the first one loads everything that is loaded once
        data = tmp_path / f"{count}.parquet"
        write_samples(data, stress(count))
        recipe = write_recipe(tmp_path / f"{count}.yaml", {"s": source(data)}, RULES)
        tracemalloc.start()
        curate(recipe, tmp_path / f"out{len(peaks)}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # At a million rows this would be 600 MB; `tests/bench/bench_curate.py` measures such a run.
    assert peaks[2] - peaks[1] < 1200 * 600


def test_ray_gives_the_same_bytes(tmp_path: Path) -> None:
    """Also with a custom filter and verifier, which every Ray worker has to load."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed (vtune[ray])")
    data = tmp_path / "s.parquet"
    truths, begins = ("4", " ", "a tower"), ("", "Tell me once more: ")
    rows = (
        replace(
            row,
            verifier="anls",
            ground_truth=truths[number % 3],
            prompt=(Message("user", begins[number % 2] + row.question),),
        )
        for number, row in enumerate(stress(3000))
    )
    write_samples(data, rows)
    filters = [
        {"filter": "verifiable", "rows": "all"},
        {"filter": "short", "rows": "all", "words": 6},
        *RULES,
        {"filter": "balance", "rows": "all", "by": "ground_truth", "times_median": 0.5},
    ]
    own = [str(ROOT / "tests/own" / name) for name in ("short.py", "anls.py")]
    recipe = write_recipe(tmp_path / "r.yaml", {"s": source(data)}, filters, uses=own)
    found = {}
    for engine in ("local", "ray"):
        words = ["curate", str(recipe), "--out", str(tmp_path / engine), "--engine", engine]
        command = [sys.executable, "-m", "vtune.cli.main", *words]
        with (tmp_path / f"{engine}.log").open("w") as log:  # Ray's servers would keep a pipe open
            ended = subprocess.run(
                command, env=environment(), stdout=log, stderr=log, timeout=HANGS, check=False
            )
        assert ended.returncode == 0, (tmp_path / f"{engine}.log").read_text()
        found[engine] = made(tmp_path / engine)
    assert found["local"] == found["ray"]
    reasons = (tmp_path / "ray/drops.jsonl").read_text()
    assert "10 words" in reasons
    assert "the ground truth is empty" in reasons


def test_a_ray_startup_failure_is_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(**_: object) -> None:
        raise Exception("The current node timed out during startup.")  # Ray's own wording

    for name in ("ray", "ray.data"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(init=late, data=SimpleNamespace()))
    with (
        pytest.raises(ServiceError, match="Ray did not start: The current node timed out") as caught,
        looking("ray"),
    ):
        pass
    assert "ray start" in (caught.value.fix or "")


def test_a_missing_ray_is_reported(tmp_path: Path) -> None:
    if find_spec("ray") is not None:
        pytest.skip("ray is installed")
    data = tmp_path / "s.parquet"
    write_samples(data, numbered(2))
    recipe = write_recipe(tmp_path / "r.yaml", {"s": source(data)}, [])
    ended = vtune("curate", recipe, "--out", tmp_path / "out", "--engine", "ray")
    assert ended.code == 2
    assert "pip install 'vtune[ray]'" in ended.err


def test_a_pass_rate_uses_an_endpoint_and_asks_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*_: object) -> ForkServer:
        raise ServiceError("without `tools` no code runs, and no sandbox has to")

    monkeypatch.setattr(ForkServer, "start", start)

    def half(body: dict[str, Any]) -> str:
        """Answers even numbers correctly, and also answers a greeting."""
        asked = body["messages"][-1]["content"]
        found = re.search(r"How much is (\d+) and 1", asked if isinstance(asked, str) else "")
        number = int(found[1]) if found else 1
        return f"<think>I add.</think>\n<answer>{number + 1 - number % 2}</answer>"

    write_samples(tmp_path / "data.parquet", numbered(6))
    with serve(half) as model:
        name = f"openai:http://127.0.0.1:{model.port}/v1#adder"
        spec = pass_rate(Path("unused"), rows="all", rollouts=2, first=None, tools=False)
        spec |= {"model": name, "engine": "openai", "band": {"of": "mean", "at_least": 1.0}}
        spec["openai"] |= {"api_key_env": None}
        recipe = write_recipe(tmp_path / "r.yaml", {"n": source(tmp_path / "data.parquet")}, [spec])
        curate(recipe, tmp_path / "out")
        asked = len(model.requests)
        curate(recipe, tmp_path / "out")
    kept = [row.id for row in read_samples(tmp_path / "out" / "samples.parquet")]
    assert sorted(kept) == ["n/0", "n/2", "n/4"]
    assert asked == 6 * 2 + 1
    assert len(model.requests) <= asked + 1  # it may be greeted again


def test_an_endpoint_is_accepted_only_with_its_engine(tmp_path: Path) -> None:
    spec = pass_rate(Path("openai:http://127.0.0.1:9/v1#m"), engine="transformers")
    spec["model"] = "openai:http://127.0.0.1:9/v1#m"
    recipe = write_recipe(tmp_path / "r.yaml", {"n": source(tmp_path / "data.parquet")}, [spec])
    ended = vtune("curate", recipe, "--out", tmp_path / "out")
    assert ended.code == 2
    assert "needs `engine: openai`" in ended.err
