"""Traces made from user samples: their looks earn full marks, and none teaches a mistake."""

import asyncio
import functools
import io
import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.runs.commands import vtune
from vtune.config import find, load_recipe
from vtune.data.traces import LOOKS, regions, showable
from vtune.errors import DataError, RecipeError
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer
from vtune.runs.data.own_traces import make_box_traces, make_run_traces
from vtune.runs.data.validating import validate
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.parquet import read_trajectories, write_samples, write_trajectories
from vtune.schema.pixels import size_of
from vtune.schema.reward import Reward
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Outcome, Trajectory

WIDE = (640, 480)


@functools.cache
def photo(seed: int = 0, size: tuple[int, int] = WIDE) -> bytes:
    """A picture in which every place looks different."""
    noise = np.random.default_rng(seed).integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


def sample(**changes: Any) -> Sample:
    found = Sample(
        id="mine/0",
        source="mine",
        prompt=(Message("user", f"{IMAGE}\nHow many cups?", (0,)),),
        images=(Picture(photo()),),
        ability="visual_search",
        ground_truth="3",
        verifier="counting",
        tools=("python",),
        evidence=(Evidence("cup", 0, (100.0, 120.0, 180.0, 200.0)),),
    )
    return replace(found, **changes)


@pytest.fixture(scope="module")
def reward() -> RewardRecipe:
    return load_recipe(find("codev", "recipes.rl"), RLRecipe, ["reward.judge=null"]).reward


def traced(folder: Path, *samples: Sample, prompt: Any = "codev") -> list[Trajectory]:
    data, out = folder / "mine.parquet", folder / "traces.parquet"
    write_samples(data, samples)
    make_box_traces([data], out, prompt=prompt)
    return list(read_trajectories(out))


TWO = (Evidence("cup", 0, (100.0, 120.0, 180.0, 200.0)), Evidence("jug", 0, (500.0, 300.0, 560.0, 400.0)))


@pytest.mark.parametrize("tool", ["python", "image_zoom_in_tool"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"evidence": TWO},
        {"evidence": (Evidence("cup", 0, (0.0, 0.0, 5.0, 5.0)), *TWO[1:])},
        {
            "images": (Picture(photo()), Picture(photo(1))),
            "prompt": (Message("user", f"{IMAGE}{IMAGE}\nHow many cups?", (0, 1)),),
            "evidence": (Evidence("cup", 1, (100.0, 120.0, 180.0, 200.0)),),
        },
        {"verifier": "exact", "ground_truth": "a jug"},
        {"verifier": "choice", "ground_truth": "B", "choices": ("one", "two")},
    ],
    ids=["one box", "two boxes", "a tiny box in the corner", "the second picture", "exact", "choice"],
)
def test_a_trace_of_boxes_would_earn_full_marks(
    tool: str, changes: dict[str, Any], reward: RewardRecipe, tmp_path: Path
) -> None:
    asked = sample(tools=(tool,), **changes)
    if tool != "python" and min(item.bbox[2] - item.bbox[0] for item in asked.evidence) < 28:
        with pytest.raises(DataError, match="too small for a zoom"):
            traced(tmp_path, asked, prompt="tools")
        return
    (trace,) = traced(tmp_path, asked, prompt="codev" if tool == "python" else "tools")

    async def scored() -> Trajectory:
        async with Scorer(reward) as scorer:
            (found,) = await scorer.score([asked], [trace])
            return found

    paid = asyncio.run(scored()).reward
    assert paid is not None
    assert (paid.accuracy, paid.format, paid.tool) == (1.0, 1.0, 1.0), paid.why
    assert trace.messages[0].role == "system"


def test_a_box_that_fills_the_picture_is_answered_without_a_look(tmp_path: Path) -> None:
    whole = (Evidence("cup", 0, (10.0, 10.0, 600.0, 400.0)),)
    (trace,) = traced(tmp_path, sample(evidence=whole))
    assert trace.calls == ()
    assert trace.messages[-1].content.endswith("<answer>3</answer>")


def test_the_number_of_traces_without_calls_is_reported(tmp_path: Path) -> None:
    whole = (Evidence("cup", 0, (10.0, 10.0, 600.0, 400.0)),)
    data = tmp_path / "s.parquet"
    write_samples(data, [sample(), sample(id="s/whole", evidence=whole)])
    made = make_box_traces([data], tmp_path / "t.parquet", prompt="codev")
    assert (made["traces"], made["without_a_call"]) == (2, 1)


def test_all_looks_together_never_cover_most_of_a_picture() -> None:
    row = tuple(Evidence("cup", 0, (x, 10.0, x + 150.0, 300.0)) for x in (0.0, 160.0, 320.0, 480.0))
    shown = regions(sample(evidence=row))
    area = sum((x1 - x0) * (y1 - y0) for _, (x0, y0, x1, y1), _ in shown)
    assert shown
    assert area <= 0.5 * WIDE[0] * WIDE[1]


@pytest.mark.parametrize("tool", ["python", "image_zoom_in_tool"])
def test_a_sample_with_too_many_boxes_for_a_trace_is_skipped_and_counted(tool: str, tmp_path: Path) -> None:
    places = [(40.0 * number, 40.0, 40.0 * number + 30, 70.0) for number in range(LOOKS + 1)]
    cups = tuple(Evidence("cup", 0, place) for place in places)
    data, out = tmp_path / "cups.parquet", tmp_path / "traces.parquet"
    few = sample(id="cups/few", tools=(tool,), evidence=cups[:LOOKS])
    write_samples(data, [few, sample(id="cups/many", tools=(tool,), evidence=cups)])
    made = make_box_traces([data], out, prompt="codev")
    (trace,) = read_trajectories(out)
    assert (trace.sample_id, sum(len(call.crops) for call in trace.calls)) == ("cups/few", LOOKS)
    assert made["left_out"] == {f"with more boxes than a trace looks at ({LOOKS})": 1}


def test_samples_and_a_run_cannot_be_given_together(tmp_path: Path) -> None:
    told = vtune("data", "make", "traces", "--run", tmp_path, "--data", "a.parquet", "--out", "b.parquet")
    assert told.code == 2
    assert "not both" in " ".join(told.err.split())


def test_samples_without_a_possible_look_are_skipped_and_counted(tmp_path: Path) -> None:
    data, out = tmp_path / "mine.parquet", tmp_path / "traces.parquet"
    blind, bare = sample(id="mine/1", evidence=()), sample(id="mine/2", tools=())
    write_samples(data, [sample(), blind, bare])
    result = make_box_traces([data], out, prompt="codev")
    assert result["traces"] == 1
    assert result["left_out"] == {"without evidence boxes": 1, "without a tool to look with": 1}
    write_samples(data, [blind])
    with pytest.raises(DataError, match="1 without evidence boxes"):
        make_box_traces([data], tmp_path / "none.parquet", prompt="codev")
    assert not (tmp_path / "none.parquet").exists()


@pytest.mark.parametrize(
    ("size", "box"),
    [
        pytest.param((2000, 1000), (10.0, 100.0, 1510.0, 101.0), id="a line of one pixel"),
        pytest.param((640, 480), (100.0, 100.0, 100.004, 137.0), id="a hair"),
        pytest.param((640, 480), (100.0, 100.0, 100.0 + 1e-13, 137.0), id="nothing but rounding"),
        pytest.param((640, 480), (0.0, 0.0, 5e-324, 137.0), id="the smallest number"),
    ],
)
def test_pictures_too_large_for_a_sandbox_are_skipped_without_using_memory(
    size: tuple[int, int], box: Any, tmp_path: Path
) -> None:
    data, out = tmp_path / "mine.parquet", tmp_path / "traces.parquet"
    out_of_it = sample(id="mine/1", images=(Picture(blank(size)),), evidence=(Evidence("line", 0, box),))
    write_samples(data, [sample(), out_of_it])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = make_box_traces([data], out, prompt="codev")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ((why, count),) = result["left_out"].items()
    assert (result["traces"], count) == (1, 1)
    assert "too thin, small or large" in why
    assert grown < 300_000, f"{grown} kB"
    assert validate([data, out])["problems"] == []


def test_code_shows_as_much_as_the_sandbox_returns() -> None:
    assert showable((0, (0, 0, 5000, 5000), 1))
    assert not showable((0, (0, 0, 5000, 5001), 1))
    assert showable((0, (0, 0, 1170, 2), 28))
    assert not showable((0, (0, 0, 1171, 2), 28))


def blank(size: tuple[int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (200, 200, 200)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def run_of(folder: Path, trajectories: list[Trajectory], *, call_images: str = "shown") -> Path:
    write_trajectories(folder / "trajectories" / "step-000000.parquet", trajectories)
    settings = find("codev", "recipes.rl").read_text(encoding="utf-8")
    (folder / "recipe.yaml").write_text(f"{settings}\ncall_images: {call_images}\n")
    return folder


def test_from_a_run_one_right_and_faithful_trajectory_per_question_is_taken(tmp_path: Path) -> None:
    (trace,) = traced(tmp_path, sample())
    paid = Reward(total=1.8, accuracy=1.0, format=1.0, tool=1.0, why="")
    good = replace(trace, reward=paid, tool_scores=(1.0,), token_ids=(1,), loss_mask=(True,), logprobs=(0.0,))
    failed = Call(tool="python", arguments="{}", status="error")
    flagged = replace(good.calls[0], flags=("whole_image",))
    longer = replace(good, messages=(*good.messages, Message("assistant", "and so on")), policy_version=3)
    other = replace(good, sample_id="mine/1")
    bad = [
        replace(good, reward=replace(paid, accuracy=0.0)),
        replace(good, reward=replace(paid, format=0.0)),
        replace(good, reward=replace(paid, accuracy=None)),
        replace(good, tool_scores=(0.5,)),
        replace(good, calls=(flagged,)),
        replace(good, calls=(*good.calls, failed), tool_scores=(1.0, 0.0)),
        replace(good, calls=(), tool_scores=()),
    ]
    run = run_of(tmp_path / "run", [*bad, longer, good, other])
    out = tmp_path / "better.parquet"
    result = make_run_traces(run, out)
    assert list(read_trajectories(out)) == [trace, replace(trace, sample_id="mine/1")]
    assert result["left_out"] == {
        "wrong": 1,
        "not well formed": 1,
        "unscored": 1,
        "without a faithful look": 1,
        "with a call that failed or has a red flag": 2,
        "without a look": 1,
        "another about the same question is shorter": 1,
    }
    with pytest.raises(DataError, match="no trace can be made"):
        make_run_traces(run_of(tmp_path / "poor", bad), tmp_path / "none.parquet")
    black = run_of(tmp_path / "black", [good], call_images="black")
    with pytest.raises(DataError, match="blackened"):
        make_run_traces(black, tmp_path / "none.parquet")


def test_only_a_search_with_full_reward_makes_a_trace(
    tmp_path: Path,
) -> None:
    passage = "1. Toledo (Bridge): The bridge of Toledo has eleven arches."
    found = Call(tool="text_search", arguments='{"query": "bridge"}', status="ok", output=passage)
    good = Trajectory(
        sample_id="search/0",
        source="search",
        messages=(
            Message("user", "How many arches has the bridge?"),
            Message("assistant", '<tool_call>{"name": "text_search"}</tool_call>'),
            Message("user", passage),
            Message("assistant", "<think>It says so.</think><answer>eleven</answer>"),
        ),
        calls=(found,),
        tool_scores=(1.0,),
        reward=Reward(total=1.8, accuracy=1.0, format=1.0, tool=1.0, why=""),
        answer="eleven",
    )
    unpaid = replace(good, sample_id="search/1", tool_scores=(0.0,))
    out = tmp_path / "searches.parquet"
    result = make_run_traces(run_of(tmp_path / "run", [good, unpaid]), out)
    (trace,) = read_trajectories(out)
    assert trace.sample_id == "search/0"
    assert trace.calls[0].output == passage
    assert result["left_out"] == {"without a faithful look": 1}


def test_traces_from_an_unfinished_evaluation_say_so(tmp_path: Path) -> None:
    (trace,) = traced(tmp_path, sample())
    paid = Reward(total=1.8, accuracy=1.0, format=1.0, tool=1.0, why="")
    run = tmp_path / "half"
    good = replace(trace, reward=paid, tool_scores=(1.0,))
    write_trajectories(run / "trajectories" / "from-00000000.parquet", [good])
    (run / "suite.yaml").write_text(find("codev", "recipes.rl").read_text(encoding="utf-8"))
    (run / "started.json").write_text('{"total": 6}')
    ended = vtune("data", "make", "traces", "--run", run, "--out", tmp_path / "traces.parquet", "--json")
    made = json.loads(ended.out)
    assert made["traces"] == 1
    assert made["unfinished"].startswith("the evaluation is not finished: 1 of 6 rollouts are generated")


def test_from_a_custom_environment_rewarded_trajectories_are_taken(tmp_path: Path) -> None:
    paid = Reward(total=1.0, accuracy=1.0, format=0.0, tool=0.0, why="")
    messages = (
        Message("user", "Go."),
        Message("assistant", "<move>up</move>"),
        Message("user", "You went up."),
    )
    act = Call(tool="maze", arguments="{}", status="ok")
    there = Trajectory(
        sample_id="maze/0",
        source="maze",
        messages=(*messages, Message("assistant", "<move>left</move>")),
        calls=(act,),
        tool_scores=(0.0,),
        reward=paid,
        outcome=Outcome(1.0, "at the goal"),
    )
    bad = [
        replace(there, reward=replace(paid, accuracy=0.25), outcome=Outcome(0.25, "on its way")),
        replace(there, calls=(act, replace(act, status="error")), tool_scores=(0.0, 0.0)),
        replace(there, stop_reason="turns"),
        replace(there, outcome=None),
    ]
    out = tmp_path / "cold.parquet"
    result = make_run_traces(run_of(tmp_path / "run", [*bad, there]), out)
    (trace,) = read_trajectories(out)
    assert trace.messages == there.messages
    assert result["left_out"] == {
        "wrong": 1,
        "with a turn that its environment did not take": 1,
        "cut off": 1,
        "not well formed": 1,
    }


@pytest.mark.parametrize(
    ("option", "said", "fix"),
    [
        (
            "--prompt",
            "a trajectory keeps the prompt that its policy read",
            "set rollout.prompt as in the run's recipe",
        ),
        ("--tiny", "the policy of a run is a model already", "start `vtune sft` from the run's model"),
    ],
)
def test_options_without_effect_on_traces_of_a_run_are_reported_with_a_fix(
    tmp_path: Path, option: str, said: str, fix: str
) -> None:
    ended = vtune(
        "data", "make", "traces", "--out", tmp_path / "t.parquet", "--run", tmp_path, option, "plain"
    )
    assert ended.code == 2
    assert f"error: {option} has no effect with --run: {said}" in ended.err
    assert f"fix  leave it out, and {fix}" in ended.err


@pytest.mark.parametrize(
    "words", [[], ["--data", "a.parquet", "--run", "b"], ["--run", "b", "--prompt", "codev"]]
)
def test_traces_come_from_samples_or_from_a_run(words: list[str], tmp_path: Path) -> None:
    ended = vtune("data", "make", "traces", "--out", tmp_path / "t.parquet", *words)
    assert ended.code == 2
    assert "Traceback" not in ended.err


def test_an_unwritable_model_folder_is_reported_for_its_option(tmp_path: Path) -> None:
    write_samples(tmp_path / "mine.parquet", [sample()])
    out, tiny = tmp_path / "traces.parquet", Path("/dev/null/tiny")
    with pytest.raises(RecipeError, match="/dev/null/tiny cannot be written") as caught:
        make_box_traces([tmp_path / "mine.parquet"], out, prompt="plain", tiny=tiny)
    assert "--tiny" in caught.value.fix
    assert not out.exists()


def test_a_sample_with_some_unviewable_boxes_is_skipped(tmp_path: Path) -> None:
    width, height = size_of(sample().images[0].data or b"")
    halves = ((0.0, 0.0, 0.4 * width, 0.9 * height), (0.6 * width, 0.0, float(width), 0.9 * height))
    cups = tuple(Evidence("cup", 0, place) for place in halves)
    data, out = tmp_path / "cups.parquet", tmp_path / "traces.parquet"
    write_samples(data, [sample(id="one", evidence=cups[:1]), sample(id="both", evidence=cups)])
    made = make_box_traces([data], out, prompt="codev")
    (trace,) = read_trajectories(out)
    assert (trace.sample_id, len(trace.calls)) == ("one", 1)
    assert made["left_out"] == {
        "with boxes that together fill too much of a picture to look closer at each": 1
    }
