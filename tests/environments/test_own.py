"""A custom environment in the loop: a maze that is drawn, walked in three turns, and rewarded."""

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.environments.worlds import changed, maze, using, way
from tests.reward.build import recipe as reward_recipe
from tests.rollout.build import ANSWER, LOOK, SAMPLE, FakeSandbox, job, roll_out
from tests.rollout.scripted import ScriptedEngine
from vtune.environments import check_environment, opened
from vtune.errors import DataError, RunFailed
from vtune.models.policy import Policy
from vtune.reward.items import read_item
from vtune.reward.score import Scorer
from vtune.reward.wire import item_of, packed_json
from vtune.rollout.agent import black
from vtune.rollout.engine import Completion, Request
from vtune.rollout.transcript import check_trace, replay
from vtune.runs.parts.parts import contract_of
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Outcome, Trajectory
from vtune.uses import used

WALL = "<move>up</move>"
LIMITS = {"max_tokens": 2000}


@pytest.fixture
def world() -> Iterator[None]:
    with using():
        yield


def scored(sample: Sample, trajectory: Trajectory) -> Trajectory:
    async def score() -> list[Trajectory]:
        async with Scorer(reward_recipe(tool=0.5)) as scorer:
            return await scorer.score([sample], [trajectory])

    (found,) = asyncio.run(score())
    return found


@pytest.mark.usefixtures("world")
def test_a_walk_of_three_turns_is_recorded_and_rewarded(policy: Policy) -> None:
    (found,) = roll_out(policy, way(), jobs=[job(maze())], **LIMITS)
    assert (found.stop_reason, found.outcome) == ("answer", Outcome(1.0, "at the goal after 3 moves"))
    assert [(one.tool, one.status, one.images) for one in found.calls] == [
        ("maze", "ok", (1,)),
        ("maze", "ok", (2,)),
    ]
    assert [one.arguments for one in found.calls] == ['{"move": "right"}'] * 2
    assert [one.origin for one in found.images] == ["input", "call:0", "call:1"]
    assert found.messages[0].content.startswith("Go to the red square.\n<image>\nYou are the blue square.")
    assert found.messages[2].content == "You went right.\n<image>"
    blue = [
        Image.open(io.BytesIO(one.data or b"")).convert("RGB").getpixel((28 * x + 9, 9))
        for x, one in enumerate(found.images)
    ]
    assert blue == [(0, 0, 255)] * 3
    written = [token for token, mask in zip(found.token_ids, found.loss_mask, strict=True) if mask]
    assert policy.chat.tokenizer.decode(written) == "<|im_end|>".join([*way(), ""])
    reward = scored(maze(), found).reward
    assert reward is not None
    assert (reward.accuracy, reward.tool) == (1.0, 0.0)
    assert "at the goal after 3 moves" in reward.why


@pytest.mark.usefixtures("world")
def test_a_walk_that_runs_out_of_turns_is_also_rewarded(policy: Policy) -> None:
    (short,) = roll_out(policy, way(), jobs=[job(maze())], max_turns=2, **LIMITS)
    assert (short.stop_reason, short.outcome) == ("turns", Outcome(0.0, "not at the goal after 2 moves"))
    # The last move is made, but its result is not shown.
    assert [one.images for one in short.calls] == [(1,), ()]
    reward = scored(maze(), short).reward
    assert reward is not None
    assert reward.accuracy == 0.0
    (cut,) = roll_out(policy, way(), jobs=[job(maze())], max_new_tokens=2, **LIMITS)
    assert (cut.stop_reason, cut.outcome) == ("length", Outcome(0.0, "not at the goal after 0 moves"))


@pytest.mark.usefixtures("world")
def test_a_mistake_is_reported_to_the_policy_and_the_walk_continues(policy: Policy) -> None:
    (found,) = roll_out(policy, [WALL, *way()], jobs=[job(maze())], max_turns=4, **LIMITS)
    assert [one.status for one in found.calls] == ["error", "ok", "ok"]
    assert found.messages[2].content == "Error: there is a wall"
    assert found.outcome == Outcome(1.0, "at the goal after 3 moves")


@pytest.mark.usefixtures("world")
def test_a_mistake_is_also_reported_in_a_shipped_environment(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "OURS", {"environment": {"maze": "maze"}})
    (found,) = roll_out(policy, [WALL, *way()], jobs=[job(maze())], max_turns=4, **LIMITS)
    assert [one.status for one in found.calls] == ["error", "ok", "ok"]
    assert found.messages[2].content == "Error: there is a wall"
    assert found.outcome == Outcome(1.0, "at the goal after 3 moves")


class Together(ScriptedEngine):
    """Each conversation has its own script: those with code look, the others walk."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.chat, ["never"])
        self._scripts: dict[tuple[int, bool], ScriptedEngine] = {}

    async def generate(self, request: Request) -> Completion:
        looks = bool(request.sampling.stop)
        script = [LOOK, ANSWER] if looks else way()
        one = self._scripts.setdefault((request.key[-2], looks), ScriptedEngine(self._chat, script))
        await asyncio.sleep(0)
        return await one.generate(request)


@pytest.mark.usefixtures("world")
def test_samples_of_several_environments_run_together_and_share_nothing(policy: Policy) -> None:
    sandbox = FakeSandbox()
    jobs = [job(maze()), job(SAMPLE), job(maze("maze/2"), rollout=1)]

    first, looked, second = roll_out(
        policy, (), engine=Together(policy), jobs=jobs, sandbox=sandbox, **LIMITS
    )
    assert first.outcome == second.outcome == Outcome(1.0, "at the goal after 3 moves")
    assert (looked.outcome, looked.answer, looked.sandbox) == (None, "7", "flat")
    assert len(sandbox.sessions) == 1


@pytest.mark.usefixtures("world")
def test_with_black_call_images_the_policy_sees_no_returned_picture(policy: Policy) -> None:
    (found,) = roll_out(policy, way(), jobs=[job(maze())], observation_transform=black, **LIMITS)
    shown = [Image.open(io.BytesIO(one.data or b"")).convert("L").getextrema() for one in found.images]
    assert shown[0] != (0, 0)
    assert shown[1:] == [(0, 0), (0, 0)]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("style", ["plain", "tools", "codev", "pool"])
def test_a_prompt_style_describes_our_tools_but_no_custom_environment(policy: Policy, style: str) -> None:
    (found,) = roll_out(policy, way(), jobs=[job(maze())], prompt=style, **LIMITS)
    assert [message.role for message in found.messages[:2]] == ["user", "assistant"]
    assert found.messages[0].content.startswith("Go to the red square.\n<image>")


@pytest.mark.usefixtures("world")
def test_an_answer_can_be_judged_by_another_verifier(policy: Policy) -> None:
    sample = replace(maze(), verifier="exact", ground_truth="S../#.G")
    (found,) = roll_out(policy, way(), jobs=[job(sample)], prompt="tools", **LIMITS)
    assert "Give the final answer between <answer> and </answer>." in found.messages[0].content
    reward = scored(sample, found).reward
    assert reward is not None
    assert reward.accuracy == 0.0


@pytest.mark.usefixtures("world")
def test_a_walk_is_saved_sent_and_trained_on(policy: Policy, tmp_path: Path) -> None:
    (found,) = roll_out(policy, way(), jobs=[job(maze())], **LIMITS)
    write_trajectories(tmp_path / "walk.parquet", [found])
    (read,) = read_trajectories(tmp_path / "walk.parquet")
    assert read.outcome == found.outcome
    sent, there = read_item(json.loads(packed_json(item_of(maze(), found))))
    assert (sent.environment, there.outcome) == ("maze", found.outcome)
    assert scored(sent, there).reward == scored(maze(), found).reward
    check_trace(read, where="walk")
    book = replay(read, policy.chat, policy.pictures)
    assert book.token_ids == list(found.token_ids)
    # Each move ends its turn, and the end token is trained on, too.
    assert book.loss_mask == list(found.loss_mask)


OURS = 'raise __import__("vtune.errors").errors.ServiceError("the maze is shut")'


@pytest.mark.parametrize(
    ("old", "calls"),
    [
        ("        named = [", ["infra"]),
        ("        there = self", ["ok", "ok", "infra"]),
        ("    sample = start.sample\n", ["infra"]),
    ],
    ids=["observe", "outcome", "open"],
)
def test_a_failure_on_our_side_leaves_the_walk_unscored(
    policy: Policy, tmp_path: Path, old: str, calls: list[str]
) -> None:
    indent = old[: len(old) - len(old.lstrip())]
    with using(changed(tmp_path, (old, f"{indent}{OURS}\n{old}"))):
        (found,) = roll_out(policy, way(), jobs=[job(maze())], **LIMITS)
        assert (found.stop_reason, found.outcome) == ("error", None)
        assert [(one.tool, one.status) for one in found.calls] == [("maze", status) for status in calls]
        assert "the maze is shut" in found.calls[-1].error
        reward = scored(maze(), found).reward
    assert reward is not None
    assert (reward.total, reward.accuracy) == (None, None)


CROPPED = (
    "__import__('dataclasses').replace(seen, crops="
    "(__import__('vtune.sandbox').sandbox.ShownCrop(bbox=(0, 0, 5, 5), image=99, shown=0),))"
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("self.moves += 1", "self.moves += one"), "NameError: name 'one' is not defined"),
        (("return Maze(", "Maze("), "`open` returns NoneType, without `observe`: return an Episode"),
        (("        self.cells = {", "        cells = {"), "AttributeError"),
        (("return Outcome(float(there)", "return Outcome(2.0"), "an outcome must be in [0, 1], got 2.0"),
        (
            ("return Outcome(float(there)", "return None; (float(there)"),
            "it judges, but `outcome` returns None",
        ),
        ((".\\n{IMAGE_MARK}", "."), "text has 0 <image> for 1 picture(s)"),
        (("[self.drawn()])\n        return [Act", "[b'?'])\n        return [Act"), "cannot be decoded"),
        (('json.dumps({"move": named[0]})', '"move"'), "JSONDecodeError"),
        (("return [Act(seen, arguments=", "return [] and [Act(seen, arguments="), "`observe` returns no act"),
        (("return [Act(seen", "return [Act(seen), Act(seen"), "2 acts with 1 responses"),
        (("self.moves = 0\n", 'self.moves = 0\n        self.stop = "</move>"\n'), "give a tuple of texts"),
        (("picture.resize(", "picture.unsize("), "has no attribute 'unsize'"),
        (("return [Act(seen", "raise __import__('asyncio').CancelledError; [Act(seen"), "was cancelled"),
        (("return [Act(seen", "raise SystemExit(0); [Act(seen"), "is broken: SystemExit: 0"),
        (("return Outcome(float(there)", "return Outcome(str(there)"), "a score is 'True': give a number"),
        (
            ("return [Act(seen", "return [Act(__import__('dataclasses').replace(seen, status='fine')"),
            "'fine': give one of ok, error",
        ),
        (("return [Act(seen", "return [Act(__import__('dataclasses').replace(seen, output=5)"), "are texts"),
        (("return [Act(seen", f"return [Act({CROPPED}"), "`image` 99, and the conversation has 1 picture(s)"),
        (("arguments=json", "tool=5, arguments=json"), "`tool` of an act is 5: give a text"),
        (("arguments=json", "end=-5, arguments=json"), "`end` of an act is -5, in a turn of"),
        (("arguments=json", "end='3', arguments=json"), "`end` of an act is '3', in a turn of"),
        (
            ("return [Act(seen, ", "return [Act(seen), Act(seen, end=3, "),
            "`end` of an act is 3, in a turn of",
        ),
        (("return [Act(seen", "return [Act(seen.text"), "it returns str, not Observation"),
        (("return [Act(seen", "raise DataError('no way') or [Act(seen"), "is broken: DataError: no way"),
    ],
)
def test_a_broken_environment_is_reported_with_its_file_and_line(
    policy: Policy, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = changed(tmp_path, change)
    with using(path), pytest.raises(RunFailed) as told:
        roll_out(policy, way(), jobs=[job(maze())], **LIMITS)
    assert said in told.value.what
    assert told.value.where.startswith(str(path))
    if "Error: " in said or "attribute" in said:
        number = int(told.value.where.rpartition(":")[2])
        assert change[1].strip().split("\n")[0] in path.read_text().split("\n")[number - 1]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("truth", ["G", "S..S", "no maze"])
def test_a_row_unfit_for_the_environment_is_an_error_with_its_id(policy: Policy, truth: str) -> None:
    sample = replace(maze(), ground_truth=truth)
    with pytest.raises(DataError, match="is not a maze") as told:
        roll_out(policy, way(), jobs=[job(sample)], **LIMITS)
    assert "maze/1" in told.value.where


def test_a_samples_environment_must_exist_and_judge_if_needed() -> None:
    with using():
        check_environment(maze())
        check_environment(replace(SAMPLE, environment="maze", ground_truth="S../#.G"))
        with pytest.raises(DataError, match="there is no environment 'mase'") as told:
            check_environment(replace(maze(), environment="mase"))
        assert "did you mean `maze`" in told.value.fix
    with pytest.raises(DataError, match="takes the reward of the environment, but `tools` gives none"):
        check_environment(replace(SAMPLE, verifier="environment_reward"))


def test_a_row_unfit_for_its_environment_is_found_before_a_run() -> None:
    with using(), pytest.raises(DataError, match="'no maze' is not a maze") as told:
        check_environment(replace(maze(), ground_truth="no maze"))
    assert "maze/1" in told.value.where


def test_an_episode_whose_opening_cannot_be_shown_is_closed(policy: Policy, tmp_path: Path) -> None:
    close = "\n    async def close(self) -> None:\n        CLOSED.append(self.moves)\n\n\nasync def open_maze"
    path = changed(
        tmp_path,
        ("\n\nasync def open_maze", close),
        ("CELL = 28", "CELL = 28\nCLOSED = []"),
        ("[self.drawn()])\n\n", '[b"?"])\n\n'),
    )
    with using(path):
        closed = sys.modules[used()[-1].module].CLOSED
        with pytest.raises(RunFailed, match="cannot be decoded"):
            roll_out(policy, way(), jobs=[job(maze())], **LIMITS)
        assert closed == [0]


def test_every_episode_is_closed_once(policy: Policy, tmp_path: Path) -> None:
    close = "\n    async def close(self) -> None:\n        CLOSED.append(self.moves)\n\n\nasync def open_maze"
    path = changed(tmp_path, ("\n\nasync def open_maze", close), ("CELL = 28", "CELL = 28\nCLOSED = []"))
    with using(path):
        closed = sys.modules[used()[-1].module].CLOSED
        roll_out(policy, way(), jobs=[job(maze())], **LIMITS)
        roll_out(policy, [WALL], jobs=[job(maze())], max_turns=1, **LIMITS)
        roll_out(policy, way(), jobs=[job(maze())], max_tokens=60)
        assert closed == [3, 0, 0]


def test_a_trial_that_ends_before_its_last_turn_fails_the_check(tmp_path: Path) -> None:
    path = changed(tmp_path, ("        return [Act(seen, ", "        [Act(seen, "))  # so that it returns None
    with using(path):
        ends = {check.name: check for check in contract_of("environment")("maze")}[
            "the turns of the trial end the episode"
        ]
    assert (ends.name, ends.ok) == ("the turns of the trial end the episode", False)
    assert ends.found == "turn 1 of the trial ends the conversation, before the last"


def test_a_lone_surrogate_in_an_answer_becomes_a_question_mark(tmp_path: Path, policy: Policy) -> None:
    path = changed(tmp_path, ('f"You went {named[0]}.', 'f"You went {named[0]}\\ud800.'))
    with using(path):
        (found,) = roll_out(policy, way(), jobs=[job(maze())], **LIMITS)
    assert found.calls[0].output.startswith("You went right?.")
