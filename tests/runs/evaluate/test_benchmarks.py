"""`vtune eval` and `vtune faithfulness` on V* and HR-Bench as published, with large pictures."""

import asyncio
import json
import os
import shutil
import struct
import tracemalloc
import weakref
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

import vtune.runs.agent.engines as vtune_engines
from tests.data.benchmarks import hrbench_rows, make_vstar, picture, write_tsv
from tests.judge.server import serve
from tests.runs.commands import setting, vtune
from tests.runs.looking import BOX, HABITS, NUMBERS, Guessing, Looking, Zooming
from vtune.config import find, load_recipe
from vtune.errors import RunFailed
from vtune.metrics.proportion import wilson
from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Request
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.parquet import read_trajectories
from vtune.schema.sample import Sample

SMALL = setting(
    dtype="float32",
    threads=1,
    images__max_pixels=12544,
    rollout__max_tokens=4000,
    rollout__max_new_tokens=200,
    rollout__max_batch=4,
    sandbox__seconds=120.0,
    published__md5="null",
)


@pytest.fixture(scope="module")
def vstar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight photographs of 4000 x 2000 pixels, four of each category."""
    return make_vstar(tmp_path_factory.mktemp("vstar") / "vstar_bench", len(HABITS), (4000, 2000), BOX)


@pytest.fixture(scope="module")
def hrbench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures, 8000 pixels wide, one per category, with four rows each."""
    pictures = [picture(number, (8000, 1500), BOX) for number in range(2)]
    return write_tsv(tmp_path_factory.mktemp("hr") / "hr_bench_8k.tsv", hrbench_rows(pictures))


def evaluation(suite: str, model: Path, data: Path, out: Path, *more: str) -> list[str]:
    return [
        "eval",
        "--suite",
        suite,
        "--model",
        str(model),
        "--data",
        str(data),
        "--out",
        str(out),
        *SMALL,
        *more,
    ]


Plays = Callable[[str, Path], None]


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Replaces the model's engine with the policy `Looking` on a benchmark."""

    def play(suite: str, data: Path) -> None:
        shipped = load_recipe(find(suite, "eval_suites"), EvalSuite, [f"data=[{data}]"])
        samples = list(read_records(shipped))
        monkeypatch.setattr(
            vtune_engines, "TransformersEngine", lambda policy, **_: Looking(policy.chat, samples)
        )

    return play


def shares(found: dict[str, Any]) -> dict[str, float]:
    return {name: found[name]["value"] for name in NUMBERS}


def done(*words: str | Path) -> Any:
    ended = vtune(*words, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


@pytest.fixture(scope="module")
def looked_at_vstar(vstar: Path, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an evaluation of `Looking` on V*."""
    out = tmp_path_factory.mktemp("eval") / "out"
    shipped = load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"data=[{vstar}]"])
    samples = list(read_records(shipped))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Looking(policy.chat, samples))
        done(*evaluation("vstar", tiny, vstar, out))
    return out


def test_vstar_gives_both_categories_and_the_scripted_faithful_share(looked_at_vstar: Path) -> None:
    found = json.loads((looked_at_vstar / "results.json").read_text())
    scores = found["score"]
    for part, right in ((scores, 5), *zip(scores["categories"].values(), (2, 3), strict=True)):
        sure = part.pop("intervals")["score"]
        assert (sure["low"], sure["high"]) == pytest.approx(wilson(right, part["n"]))
    assert scores == {
        "score": 5 / 8,
        "n": 8,
        "clusters": 8,
        "unreadable": 2,
        "unscored": 0,
        "categories": {
            "direct_attributes": {"score": 2 / 4, "n": 4, "clusters": 4, "unreadable": 1, "unscored": 0},
            "relative_position": {"score": 3 / 4, "n": 4, "clusters": 4, "unreadable": 1, "unscored": 0},
        },
    }
    assert shares(found["faithfulness"]) == pytest.approx(NUMBERS)
    assert found["unaudited"] == 0
    trajectories = list(read_trajectories(looked_at_vstar / "trajectories.parquet"))
    asked = [t.messages[1].content for t in trajectories]
    assert all(text.count("Please select the correct answer from the options above.") == 1 for text in asked)
    assert all(
        text.startswith("<image>\nQuestion: What is the colour of the sign?\nOptions:\nA. ") for text in asked
    )
    assert sorted(file.name for file in looked_at_vstar.iterdir()) == [
        ".lock",
        "items.jsonl",
        "results.json",
        "suite.yaml",
        "trajectories.parquet",
    ]


def test_vstar_options_have_the_official_or_a_seeded_order(vstar: Path, tmp_path: Path) -> None:
    def truths(*words: str, data: Path = vstar) -> str:
        suite = load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"data=[{data}]", *words])
        return "".join(sample.ground_truth for sample in read_records(suite))

    rows = [json.loads(line) for line in (vstar / "test_questions.jsonl").read_text().splitlines()]
    official = {row["image"].split(".")[0]: row["label"] for row in rows}
    assert truths() == "".join(official[name] for name in sorted(official)) == "ADCBABAB"
    assert truths("choices.order=0") not in (truths(), truths("choices.order=1"))
    bare = shutil.copytree(vstar, tmp_path / "bare")
    (bare / "test_questions.jsonl").unlink()
    assert truths(data=bare) == "A" * 8


def test_a_benchmark_whose_right_option_always_comes_first_is_refused(
    vstar: Path, tiny: Path, tmp_path: Path
) -> None:
    bare = shutil.copytree(vstar, tmp_path / "bare")
    (bare / "test_questions.jsonl").unlink()
    ended = vtune(*evaluation("vstar", tiny, bare, tmp_path / "out"))
    assert ended.code == 2
    assert "the right option is A in all of 8 questions" in ended.err
    assert "choices.order" in ended.err


def test_hrbench_gives_fsp_fcp_and_the_mean_over_its_rotations(
    hrbench: Path, tiny: Path, tmp_path: Path, plays: Plays
) -> None:
    plays("hrbench-8k", hrbench)
    found = done(*evaluation("hrbench-8k", tiny, hrbench, tmp_path / "out"))
    assert {name: found["score"][name] for name in ("score", "fsp", "fcp", "unreadable")} == {
        "score": 5 / 8,
        "fsp": 2 / 4,
        "fcp": 3 / 4,
        "unreadable": 2,
    }
    assert [cycle["score"] for cycle in found["score"]["cycles"].values()] == [1.0, 1.0, 0.5, 0.0]
    # Two questions, each four times.
    assert (found["score"]["n"], found["score"]["clusters"], found["power"]["clusters"]) == (8, 2, 2)
    assert found["score"]["intervals"]["score"]["value"] == 5 / 8
    assert found["faithfulness"]["clusters"] == 2
    assert (found["faithfulness"]["n"], found["unaudited"]) == (8, 8)
    assert found["judged_by"] == {"boxes": 0, "model": 0}
    assert "no evidence boxes" in found["faithfulness"]["no_shares"]
    assert found["faithfulness"]["faithful_of_all"] is None
    assert sum(bucket["share"]["value"] for bucket in found["faithfulness"]["buckets"]) == 1.0

    refused = vtune("faithfulness", tmp_path / "out")
    assert refused.code == 1
    assert "no evidence boxes, and no judge" in refused.err
    with serve("1") as judge:
        url = judge.endpoint().base_url
        seen = done("faithfulness", tmp_path / "out", "--judge-url", url, "--judge-model", "judge")
    # This judge accepts every crop as the target, so u also counts as faithful.
    assert seen["all"]["faithful_of_correct"]["value"] == 1.0
    assert seen["all"]["accuracy"]["value"] == 5 / 8
    texts = [part["text"] for part in judge.requests[0]["messages"][1]["content"] if part["type"] == "text"]
    assert "What is the colour of the sign?" in texts[0]
    assert "A. " not in texts[0]


ZOOM = setting(
    offers="[image_zoom_in_tool]",
    tools="{zoom: {space: relative_1000, min_side: 28}}",
    rollout__prompt="tools",
)
NOTHING = setting(offers="[]", rollout__prompt="plain")


@pytest.mark.parametrize(
    ("player", "words", "numbers"),
    [
        pytest.param(Zooming, ZOOM, NUMBERS, id="a zoom agent"),
        pytest.param(
            Guessing,
            NOTHING,
            {"accuracy": 5 / 8, "faithful_of_all": 0.0, "no_tool_of_all": 5 / 8, "tool_calls": 0.0},
            id="no tools",
        ),
    ],
)
def test_vstar_is_evaluated_and_audited_with_the_suites_tools(
    player: type[Looking],
    words: list[str],
    numbers: dict[str, float],
    vstar: Path,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped = load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"data=[{vstar}]"])
    samples = list(read_records(shipped))
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: player(policy.chat, samples))
    found = done(*evaluation("vstar", tiny, vstar, tmp_path / "out", *words))
    assert found["score"]["score"] == 5 / 8
    audited = done("faithfulness", tmp_path / "out")["all"]
    for said in (found["faithfulness"], audited):
        assert {name: said[name]["value"] for name in numbers} == pytest.approx(numbers)
    first = next(iter(read_trajectories(tmp_path / "out" / "trajectories.parquet")))
    asked = "\n".join(turn.content for turn in first.messages if turn.role != "assistant")
    assert ("image_zoom_in_tool" in asked) == (player is Zooming)
    assert "<code>" not in asked


def test_a_suite_sets_a_benchmarks_tools_with_a_prompt_that_describes_them(
    vstar: Path, tiny: Path, tmp_path: Path
) -> None:
    words = evaluation("vstar", tiny, vstar, tmp_path / "out")
    for more, told in (
        (setting(offers="null"), "name no tools: write `offers: [python]`"),
        (setting(offers="[zoom]"), "`offers.0`"),
        (setting(offers="[image_zoom_in_tool]"), "no section tools.zoom says how to run it"),
        (ZOOM[:-2], "offers image_zoom_in_tool, which the prompt `codev` does not describe"),
    ):
        ended = vtune(*words, *more)
        assert (ended.code, told in ended.err) == (2, True), ended.err
    assert not (tmp_path / "out").exists()


def test_boxes_and_a_model_judge_are_compared(looked_at_vstar: Path, tmp_path: Path) -> None:
    # An audit is stored beside the run, which other tests use.
    run = shutil.copytree(looked_at_vstar, tmp_path / "run")
    said = json.loads((run / "results.json").read_text())["faithfulness"]
    alone = done("faithfulness", run)
    assert alone["all"] == said
    assert "agreement" not in alone
    with serve("0") as judge:
        model = ["--judge-url", judge.endpoint().base_url, "--judge-model", "judge"]
        both = done("faithfulness", run, "--looks", "both", *model)
        by_model = done("faithfulness", run, "--looks", "model", *model)
    assert both["all"] == said
    assert both["by_model"]["all"] == by_model["all"]
    assert by_model["all"]["shown_of_all"]["value"] == 0.0
    # Seven looks: the boxes see the target in five, the judge in none.
    assert both["agreement"] == {
        "n": 7,
        "agree": 2 / 7,
        "kappa": 0.0,
        "both": 0,
        "first_only": 5,
        "second_only": 0,
        "neither": 2,
    }
    ended = vtune("faithfulness", run, "--looks", "both")
    assert ended.code == 2
    assert "there is no model to ask" in ended.err
    assert vtune("faithfulness", run, "--looks", "eyes").code == 2


def test_the_tiny_model_is_evaluated_and_audited_on_both_benchmarks(
    tiny: Path, vstar: Path, hrbench: Path, tmp_path: Path
) -> None:
    short = setting(rollout__max_new_tokens=8)
    for suite, data in (("vstar", vstar), ("hrbench-4k", hrbench)):
        found = done(*evaluation(suite, tiny, data, tmp_path / suite, *short, "--limit", "2"))
        # Random weights produce no answer in eight tokens.
        assert (found["score"]["score"], found["score"]["unreadable"], found["samples"]) == (0.0, 2, 2)
    assert done("faithfulness", tmp_path / "vstar")["all"]["no_tool_of_all"]["value"] == 0.0
    told = vtune("report", tmp_path / "vstar", tmp_path / "hrbench-4k")
    assert told.code == 0
    assert "categories.direct_attributes.score" in told.out
    assert "fsp" in told.out


def test_an_interrupted_evaluation_resumes_and_generates_nothing_twice(
    looked_at_vstar: Path,
    vstar: Path,
    tiny: Path,
    tmp_path: Path,
    plays: Plays,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plays("vstar", vstar)
    monkeypatch.setattr("vtune.runs.evaluate.windows.ROLLOUTS", 3)
    out = tmp_path / "out"
    words = evaluation("vstar", tiny, vstar, out)
    drawn: list[int] = []
    play = Looking.generate

    async def counted(self: Looking, request: Any) -> Any:
        if request.key[-1] == 0:
            drawn.append(request.key[2])
        if len(drawn) == 5 and not resumed:
            raise RunFailed("the engine broke")
        if len(drawn) == 4 and not resumed:
            await asyncio.Event().wait()  # a conversation that ended before the engine failed would be kept
        return await play(self, request)

    monkeypatch.setattr(Looking, "generate", counted)
    resumed = False
    assert vtune(*words).code == 1
    assert [path.name for path in (out / "trajectories").iterdir()] == ["from-00000000.parquet"]
    assert not (out / "results.json").exists()
    again = vtune(*words)
    assert again.code == 2
    assert "continue it with --resume" in again.err
    other = vtune(*words, "--resume", "--set", "seed=1")
    assert other.code == 2
    assert "differs in suite.seed" in other.err
    far = "the evaluation is not finished: 3 of 8 rollouts are generated"
    for command in ("report", "faithfulness"):
        refused = vtune(command, out)
        assert refused.code == 2
        assert far in refused.err
        assert "with --resume" in refused.err
    assert not (out / "audit.json").exists()
    assert f"{far}; run the same command again with --resume" in " ".join(vtune("show", out).out.split())

    resumed = True
    drawn.clear()
    found = done(*words, "--resume")
    assert sorted(drawn) == [3, 4, 5, 6, 7]
    whole = json.loads((looked_at_vstar / "results.json").read_text())
    assert {name: found[name] for name in ("score", "sources", "faithfulness")} == {
        name: whole[name] for name in ("score", "sources", "faithfulness")
    }
    assert [t.token_ids for t in read_trajectories(out / "trajectories.parquet")] == [
        t.token_ids for t in read_trajectories(looked_at_vstar / "trajectories.parquet")
    ]
    assert (
        "holds no evaluation to resume"
        in vtune(*evaluation("vstar", tiny, vstar, tmp_path / "new"), "--resume").err
    )


def test_missing_or_broken_data_come_with_download_instructions(
    tiny: Path, vstar: Path, tmp_path: Path
) -> None:
    for suite, what in (("vstar", "craigwu/vstar_bench"), ("hrbench-4k", "DreamMr/HR-Bench hr_bench_4k.tsv")):
        ended = vtune(*evaluation(suite, tiny, tmp_path / "none", tmp_path / "out"))
        assert ended.code == 2
        assert f"hf download {what}" in ended.err
        assert "--data PATH" in ended.err
    (tmp_path / "half").mkdir()
    ended = vtune(*evaluation("vstar", tiny, tmp_path / "half", tmp_path / "out"))
    assert ended.code == 2
    assert "there is no folder" in ended.err
    twice = vtune(*evaluation("vstar", tiny, vstar, tmp_path / "out", "--data", str(vstar)))
    assert "is named twice" in twice.err
    assert not (tmp_path / "out").exists()


def test_all_bad_rows_are_reported_before_anything_starts(
    tiny: Path, vstar: Path, hrbench: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "vstar"
    shutil.copytree(vstar, folder)
    notes = sorted(folder.rglob("*.json"))[1:3]
    for note in notes:
        note.write_text(note.read_text().replace('"bbox": [[', '"bbox": [[99999, '))
    table = tmp_path / "hr_bench_4k.tsv"
    lines = hrbench.read_text().splitlines()
    for row in (2, 5):
        values = lines[1 + row].split("\t")
        values[lines[0].split("\t").index("answer")] = "Z"
        lines[1 + row] = "\t".join(values)
    table.write_text("\n".join(lines) + "\n")
    for suite, data, places in (
        ("vstar", folder, [str(note) for note in notes]),
        ("hrbench-4k", table, [f"{table}, rows 2 and 5"]),
    ):
        ended = vtune(*evaluation(suite, tiny, data, tmp_path / "out"))
        assert ended.code == 2
        assert "2 problem(s) in the data" in ended.err
        assert all(place in ended.err for place in places), ended.err


def noise(width: int, height: int) -> bytes:
    """An uncompressed PNG, written directly: Pillow would try every filter on each line."""
    lines = b"".join(b"\0" + os.urandom(3 * width) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 0)), (b"IEND", b""))
    sealed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(sealed)


class Counted(Looking):
    """Records at each question how many of these pictures are in memory, decoded or not."""

    def __init__(
        self, chat: Chat, samples: Sequence[Sample], made: "list[weakref.ref[Image.Image]]", there: list[int]
    ) -> None:
        super().__init__(chat, samples)
        self._made = made
        self._there = there

    async def generate(self, request: Request) -> Completion:
        self._there.append(sum(one() is not None for one in self._made))
        return await super().generate(request)


SIDES = 1600, 800
PIXELS = 3 * 1600 * 800
"""Bytes of one picture."""


def peak(count: int, tiny: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Peak bytes held by Python and Arrow in an evaluation of this many pictures, and decoded pictures."""
    note = {"target_object": ["sign"], "bbox": [[1200, 280, 160, 120]], "question": "Which?"}
    for number in range(count):
        here = folder / ("direct_attributes", "relative_position")[number % 2]
        here.mkdir(parents=True, exist_ok=True)
        (here / f"{number}.png").write_bytes(noise(*SIDES))
        (here / f"{number}.json").write_text(json.dumps(note | {"options": ["cup", "sign"]}))
    suite = load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"data=[{folder}]"])
    samples, there = list(read_records(suite)), list[int]()
    made: list[weakref.ref[Image.Image]] = []
    begin = Image.Image.__init__

    def noted(self: Image.Image) -> None:
        made.append(weakref.ref(self))
        begin(self)

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "__init__", noted)
        patch.setattr(
            vtune_engines,
            "TransformersEngine",
            lambda policy, **_: Counted(policy.chat, samples, made, there),
        )
        before = pa.default_memory_pool()
        pool = pa.proxy_memory_pool(before)
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            out = folder.with_name(f"{folder.name}-out")
            done(*evaluation("vstar", tiny, folder, out, *setting(rollout__max_batch=1)))
            held = tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
    assert len(there) == count
    assert len(made) >= count
    return held, max(there)


def test_memory_does_not_grow_with_the_number_of_pictures(
    looked_at_vstar: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looked_at_vstar.is_dir()  # so that everything an evaluation imports is loaded
    # All hold pictures up to a size that so few do not reach.
    monkeypatch.setattr("vtune.runs.data.pictures_ahead.BYTES", 2 * PIXELS)
    monkeypatch.setattr("vtune.runs.evaluate.windows.BYTES", 2 * PIXELS)
    monkeypatch.setattr("vtune.runs.evaluate.audited.AUDITED_BYTES", 2 * PIXELS)
    monkeypatch.setattr("tests.runs.looking.HABITS", "w")
    (few, one), (many, other) = (peak(count, tiny, tmp_path / str(count), monkeypatch) for count in (3, 7))
    assert many - few < 2 * PIXELS  # for the four additional pictures
    assert other <= one
