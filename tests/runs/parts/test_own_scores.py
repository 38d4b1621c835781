"""A custom evidence judge and a custom reward part in rl, a service, the audit and the report."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.reward.build import TARGET, looks, recipe, sample
from tests.reward.serving import serving
from tests.runs.commands import setting, vtune
from tests.runs.launched import Launched
from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.metrics.log import read_metrics
from vtune.reward.recipe import RewardRecipe, RewardService
from vtune.reward.score import Scorer
from vtune.runs.parts.parts import check_parts
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import Message
from vtune.schema.parquet import read_samples, read_trajectories, write_samples, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.uses import forget, use, used

OWN = ROOT / "tests/own"
BESIDE = (0, 0, 20, 20)
TWO_RANKS = 600.0
"""Maximum seconds for a run with two processes on a busy machine."""

RUN = setting(
    seed=0,
    steps=1,
    prompts_per_step=2,
    group_size=2,
    update__threads=1,
    update__warmup_steps=0,
    trajectories_every=1,
    reward__tool_gated=False,
)


pytestmark = pytest.mark.usefixtures("forgetting")


def scratch(folder: Path, tiny: Path, data: Path) -> Path:
    """A recipe with both custom parts beside it."""
    for name in ("near.py", "brief.py"):
        shutil.copy(OWN / name, folder)
    lines = (ROOT / "recipes/rl/codev-tiny.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("model:", "data:"))]
    text = "\n".join(["uses: [near.py, brief.py]", f"model: {tiny}", f"data: [{data}]", *kept, ""])
    text = text.replace("  evidence:\n", "  parts: {brief: {weight: 0.2, words: 60}}\n  evidence:\n")
    text = text.replace("    search_sources: []", "    search_sources: []\n    judges: [near]")
    (folder / "mine.yaml").write_text(text)
    return folder


def test_rl_records_custom_scores_by_source_and_the_audit_asks_the_judge(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    here = scratch(tmp_path, tiny, lens / "train.parquet")
    ended = vtune("rl", "--recipe", here / "mine.yaml", "--out", here / "run", *RUN)
    assert ended.code == 0, ended.err
    (file,) = (here / "run/trajectories").glob("step-*.parquet")
    found = list(read_trajectories(file))
    rewards = [one.reward for one in found if one.reward is not None]
    assert len(rewards) == 4
    for done, reward in zip(found, rewards, strict=True):
        words = len(done.reply.split())
        assert reward.own["brief"] == pytest.approx(max(0.0, 1 - words / 60))
        assert f"brief: {words} words" in reward.why
        rest = reward.total - 0.2 * (reward.own["brief"] or 0) if reward.total is not None else None
        rule = load_recipe(here / "run/recipe.yaml", RLRecipe).reward
        ours = {name: getattr(rule, name) * getattr(reward, name) for name in ("accuracy", "format", "tool")}
        assert rest == pytest.approx(sum(ours.values()), abs=1e-6)  # float32 in the file
    rows = {row.source: row.values for row in read_metrics(here / "run/metrics.jsonl")}
    mean = sum(reward.own["brief"] or 0 for reward in rewards) / 4
    assert rows["lens"]["reward_brief"] == pytest.approx(mean)
    report = vtune("report", here / "run", "--all").out
    assert "reward_brief" in report
    assert "uses brief.py" in report
    forget(used())

    write_samples(here / "asked.parquet", [sample(TARGET)])
    write_trajectories(here / "run/some.parquet", [looks(TARGET), looks(BESIDE), looks(TARGET)])
    words = ("faithfulness", here / "run/some.parquet", "--data", here / "asked.parquet", "--json")
    ended = vtune(*words)
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert result["judged_by"] == {"boxes": 0, "model": 0, "near": 3}
    assert result["all"]["shown_of_all"]["value"] == pytest.approx(2 / 3)
    assert "by near" in result["note"]
    by_boxes = json.loads(vtune(*words, "--looks", "boxes").out)
    assert by_boxes["judged_by"] == {"boxes": 3, "model": 0}


def own_recipe(**changes: object) -> RewardRecipe:
    levels = {**recipe().evidence.model_dump(), "judges": ["near"]}
    return recipe(evidence=levels, parts={"brief": {"weight": 0.2, "words": 60}}, **changes)


def scores(rule: RewardRecipe, asked: Sample, done: list[Trajectory]) -> list[Trajectory]:
    async def run() -> list[Trajectory]:
        async with Scorer(rule) as scorer:
            return await scorer.score([asked], done)

    return asyncio.run(run())


def test_a_service_scores_with_custom_parts_like_the_run_and_refuses_unknown_ones(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    here = scratch(tmp_path, tiny, lens / "train.parquet")
    use([here / "near.py", here / "brief.py"])
    rule = own_recipe()
    asked, done = sample(TARGET), [looks(TARGET), looks(BESIDE), looks()]
    local = scores(rule, asked, done)
    assert [one.tool_scores for one in local] == [(1.0,), (rule.evidence.miss,), ()]
    with serving("--recipe", str(here / "mine.yaml")) as served:
        remote = own_recipe(service=RewardService(urls=(served.url,), deadline_s=60.0))
        assert scores(remote, asked, done) == local
    with serving() as other:
        stranger = own_recipe(service=RewardService(urls=(other.url,), deadline_s=60.0))
        for one in scores(stranger, asked, done):
            assert one.reward is not None
            assert one.reward.total is None
            assert "has not loaded" in one.reward.why


SPEAKS = '''

import vtune.runs.agent.engines as engines
from tests.rollout.scripted import ScriptedEngine
from vtune.runs.train import learning

TURNED = '<think>I turn it.</think><tool_call>{"name": "rotate_tool", "arguments": {"angle": 90}}</tool_call>'
SIGNS = (TURNED, "<think>I read.</think><answer>NO PARKIN</answer>"), (TURNED, "<answer>keep out</answer>")
WALK = tuple(f"<move>{move}</move>" for move in ("right", "right", "down"))


class Speaks(ScriptedEngine):
    """Of a group one reads nearly what the sign says and one does not; all reach the goal."""

    def __init__(self, policy, **_):
        super().__init__(policy.chat, ["never"])

    async def generate(self, request):
        *_, rollout, turn = request.key
        walks = "<move>" in self._chat.tokenizer.decode(request.token_ids)
        script = WALK if walks else SIGNS[rollout]
        return await ScriptedEngine(self._chat, [script[turn]]).generate(request)


engines.TransformersEngine = Speaks
learning.MISMATCH = float("inf")  # its log-probabilities are nobody's
'''
"""Added to a user's own file by a test: the policy of every rank says what it is told."""


def signs_and_mazes(lens: Path, out: Path) -> Path:
    """Four rows, so that each of two ranks gets a sign, to be read and turned, and a maze."""
    maze = Sample(
        id="maze",
        source="maze",
        prompt=(Message("user", "Go to the red square."),),
        ground_truth="S../#.G",
        verifier="environment_reward",
        environment="maze",
    )
    puzzle = next(iter(read_samples(lens / "train.parquet")))
    sign = replace(puzzle, ground_truth="NO PARKING", verifier="anls", tools=("rotate_tool",))
    rows = [sign, sign, maze, maze]  # rank 0 gets the third and the first with this seed
    write_samples(out, [replace(row, id=f"{row.source}-{number}") for number, row in enumerate(rows)])
    return out


def own_everything(here: Path, lens: Path) -> tuple[str, ...]:
    """A user's own files next to a recipe, with a loss that records its rank, and settings to use them."""
    signs_and_mazes(lens, here / "mixed.parquet")
    seen = f"    open({str(here / 'seen-')!r} + os.environ['RANK'], 'w').close()\n    likely ="
    loss = (OWN / "pushes.py").read_text().replace("    likely =", seen)
    (here / "pushes.py").write_text(f"import os\n{loss}")
    (here / "rotate.py").write_text((OWN / "rotate.py").read_text() + SPEAKS)
    for name in ("maze.py", "anls.py"):
        shutil.copy(OWN / name, here)
    files = ("near.py", "brief.py", "pushes.py", "maze.py", "anls.py", "rotate.py")
    return setting(
        uses=f"[{', '.join(str(here / name) for name in files)}]",
        loss="{algorithm: pushes, fade: 0.5, aggregation: token_mean, kl_weight: 0.0}",
        prompts_per_step=4,
        rollout__max_tokens=2000,
        rollout__max_turns=3,
        rollout__prompt="tools",
        rollout__max_new_tokens=200,
        tools="{rotate_tool: {}}",
    )


def test_both_ranks_of_a_run_have_every_kind_of_custom_part(tiny: Path, lens: Path, tmp_path: Path) -> None:
    here = scratch(tmp_path, tiny, tmp_path / "mixed.parquet")
    own = own_everything(here, lens)
    words = ("rl", "--recipe", here / "mine.yaml", "--out", here / "run", *RUN, *own, "--gpus", "2")
    started = Launched(words, tmp_path / "said")
    try:
        started.expect(0, TWO_RANKS)
    finally:
        started.end()
        Launched.every.remove(started)
    assert {path.name for path in here.glob("seen-*")} == {"seen-0", "seen-1"}
    for rank in (0, 1):
        (file,) = (here / "run/trajectories").glob(f"step-*-rank-{rank}.parquet")
        found = list(read_trajectories(file))
        rewards = [one.reward for one in found if one.reward is not None]
        assert len(found) == len(rewards) == 4
        assert all(reward.own["brief"] is not None for reward in rewards)
        walks = [one for one in found if one.source == "maze"]
        assert [one.outcome.score for one in walks if one.outcome] == [1.0, 1.0]
        signs = [one for one in found if one.source != "maze"]
        assert [[(call.tool, call.status) for call in one.calls] for one in signs] == [
            [("rotate_tool", "ok")]
        ] * 2
        accuracies = [one.reward.accuracy for one in signs if one.reward]
        assert accuracies == [pytest.approx(0.9), 0.0]
        assert all(len(one.tool_scores) == 1 and None not in one.tool_scores for one in signs)
    rows = {row.source: row.values for row in read_metrics(here / "run/metrics.jsonl")}
    assert "reward_brief" in rows["lens"]


def test_an_unreadable_picture_leaves_the_call_unscored() -> None:
    use([OWN / "near.py", OWN / "brief.py"])
    done = looks(TARGET)
    broken = replace(done, images=tuple(replace(one, data=b"no picture") for one in done.images))
    (scored,) = scores(own_recipe(), sample(TARGET), [broken])
    assert scored.tool_scores == (None,)
    assert scored.reward is not None
    assert scored.reward.total is None
    assert scored.reward.own["brief"] is not None


def test_settings_of_custom_parts_are_read_strictly(tmp_path: Path) -> None:
    use([OWN / "near.py", OWN / "brief.py"])
    path = find("codev-tiny", "recipes.rl")
    for override, what in (
        (
            "reward.parts={brief: {weight: 0.1, word: 3}}",
            "`reward.parts.brief.word`; did you mean `words`",
        ),
        ("reward.parts={brief: {weight: 2, words: 3}}", "`reward.parts.brief.weight`"),
        ("reward.parts={breif: {weight: 0.1}}", "unknown key `reward.parts.breif`; did you mean `brief`"),
        ("reward.evidence.judges=[neer]", "there is no evidence judge `neer`; did you mean `near`"),
    ):
        with pytest.raises(RecipeError) as told:
            load_recipe(path, RLRecipe, [override])
        assert what in str(told.value)
    samples_decide = ["reward.parts={brief: {weight: 0.1, words: 3}}", "reward.weighting=sample"]
    assert load_recipe(path, RLRecipe, samples_decide).reward.parts.given["brief"].weight == 0.1


def test_a_recipe_without_custom_parts_is_written_unchanged() -> None:
    written = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe).reward.model_dump(mode="json")
    assert "parts" not in written
    assert "judges" not in written["evidence"]


@pytest.mark.parametrize(
    ("file", "old", "new", "check"),
    [
        ("anls.py", "1.0 - share if", "1.33 - share if", "the gold answer earns full marks"),
        ("brief.py", "max(0.0, 1.0 - words", "max(1.33, 1.0 - words", "scores lie within the bounds"),
        ("near.py", "Verdict(self._levels.full", "Verdict(1.33", "a look at the target earns `full`"),
        ("maze.py", "Outcome(float(there)", "Outcome(1.33", "an episode opens and answers a turn"),
    ],
)
def test_a_score_out_of_bounds_gets_advice_to_scale_it(
    tmp_path: Path, file: str, old: str, new: str, check: str
) -> None:
    text = (OWN / file).read_text()
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new))
    (part,) = check_parts([path])["parts"]
    (told,) = [one for one in part["checks"] if one["name"] == check]
    assert not told["ok"]
    found = (
        "an outcome must be in [0, 1], got 1.33"
        if file == "maze.py"
        else "a score is 1.33, and scores lie in"
    )
    assert f"OutOfRange: {found}" in told["found"]
    assert told["fix"].startswith("scale it: divide by the most that it can be")
