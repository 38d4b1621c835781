"""Weights that change during conversations, in complete runs; tests/vllm has a real vLLM."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import vtune.runs.train.opening as opening
import vtune.runs.train.rl as checks
from tests.conftest import load
from tests.runs.commands import numbers, rl, setting, vtune
from tests.update.build import logprobs_of
from vtune.models.policy import Policy
from vtune.rollout.engine import Completion, Request, Weights
from vtune.rollout.transformers import TransformersEngine
from vtune.runs.train.learning import item_of
from vtune.schema.parquet import read_trajectories
from vtune.schema.trajectory import Trajectory

pytestmark = pytest.mark.train

STEPS, BEHIND = 5, 2
AHEAD = {"rollout__engine": "vllm", "rollout__staleness": BEHIND, "rollout__interrupt": True}


class Copied:
    """Generates with its own weights, as vLLM does.

    A turn of a step that is generated ahead is written in two parts: the second waits for new weights.
    """

    cohorts = 1

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.version = -1
        self.newer = asyncio.Event()
        self.busy = asyncio.Lock()

    def join(self, cohort: int) -> None:
        """Nothing waits for others here."""

    def leave(self, cohort: int) -> None:
        """Nothing waits for others here."""

    async def take(self, weights: Weights, version: int) -> None:
        held = dict(self.policy.model.named_parameters())
        async with self.busy:
            with torch.no_grad():
                for name, tensor in weights():
                    held[name].copy_(tensor)
            self.version = version
        self.newer.set()
        self.newer = asyncio.Event()

    async def rest(self) -> None:
        """Its memory is its own."""

    async def aclose(self) -> None:
        """Nothing to end."""

    async def generate(self, request: Request) -> Completion:
        _, step, *_ = request.key
        asked = request.sampling.max_new_tokens
        if step <= self.version or asked < 8:
            return await self.drawn(request, asked)
        first = await self.drawn(request, 4)
        if first.finish != "length":
            return first
        await self.newer.wait()
        longer = replace(request, token_ids=(*request.token_ids, *first.token_ids), key=(*request.key, 1))
        second = await self.drawn(longer, asked - 4)
        return Completion(
            first.token_ids + second.token_ids,
            first.logprobs + second.logprobs,
            second.finish,
            first.weight_versions + second.weight_versions,
        )

    async def drawn(self, request: Request, tokens: int) -> Completion:
        one = TransformersEngine(self.policy, max_batch=1)
        one.join(0)
        sampling = replace(request.sampling, max_new_tokens=tokens)
        async with self.busy:
            found = await one.generate(replace(request, sampling=sampling, cohort=0))
            return replace(found, weight_versions=(self.version,) * len(found.token_ids))


@pytest.fixture(scope="module")
def run(schooled: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose weights change during every step except the first."""
    out = tmp_path_factory.mktemp("runs") / "interrupted"
    given = setting(
        steps=STEPS, rollout__engine="vllm", rollout__staleness=BEHIND, rollout__interrupt=True,
        checkpoints__every=1, checkpoints__keep=STEPS, update__learning_rate=1e-3,
    )  # fmt: skip

    def engine(*recipe_and_policy: Any, **rest: Any) -> Copied:
        return Copied(load(schooled))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "training_engine", engine)
        patch.setattr(checks, "check_vllm", lambda: None)
        ended = vtune(*rl(schooled, lens / "train.parquet", out, *given))
    assert ended.code == 0, ended.err
    return out


def drawn(run: Path, step: int) -> list[Trajectory]:
    return list(read_trajectories(run / "trajectories" / f"step-{step:06d}.parquet"))


def versions_of(trajectory: Trajectory) -> list[int]:
    return [version for version in trajectory.weight_versions if version is not None]


def test_each_token_has_its_version_within_the_allowed_staleness(run: Path) -> None:
    for step in range(STEPS):
        found = [versions_of(t) for t in drawn(run, step)]
        assert all(one == sorted(one) for one in found)
        assert all(max(0, step - BEHIND) <= min(one) and max(one) <= step for one in found)
        row = numbers(run)[step, "all"]
        assert row["staleness_max"] == max(step - min(one) for one in found)
        assert row["interrupted_share"] == sum(len(set(one)) > 1 for one in found) / len(found)
    assert numbers(run)[0, "all"]["interrupted_share"] == 0
    assert all(numbers(run)[step, "all"]["interrupted_share"] > 0.5 for step in range(1, STEPS))


def test_each_token_is_weighted_against_the_weights_that_generated_it(
    run: Path, schooled: Path, lens: Path
) -> None:
    """Its log-probability matches that of its own version, as saved, and of no other."""
    saved = [load(schooled)] + [load(run / f"checkpoints/step-{step:06d}") for step in range(1, STEPS)]
    items = [item_of(replace(t, advantage=1.0), updated=False) for t in drawn(run, 3)]
    items = [item for item in items if item.counted]
    by_version = [torch.cat(logprobs_of(policy, items)).detach() for policy in saved]
    versions = torch.tensor([v for t in drawn(run, 3) for v in versions_of(t)])
    old = torch.tensor([value for item in items for value in item.old_logprobs])
    assert len(set(versions.tolist())) > 1
    for version in set(versions.tolist()):
        own = versions == version
        torch.testing.assert_close(by_version[version][own], old[own], rtol=0, atol=1e-4)
        others = [by_version[other][own] for other in range(4) if other != version]
        assert all(float((other - old[own]).abs().max()) > 1e-3 for other in others)
    off = torch.tensor([one for item in items for one in item.off_policy])
    assert off.tolist() == (versions < 3).tolist()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rollout__staleness": 2}, "staleness 2 needs interrupt: true"),
        ({"rollout__interrupt": True}, "interrupt has no effect with staleness 0"),
        ({"rollout__staleness": -1}, "greater than or equal to 0"),
        (
            {"rollout__staleness": 3, "rollout__interrupt": True},
            "staleness is 3, but the transformers",
        ),
        ({"rollout__adapters": "alone"}, "needs a vLLM on one GPU; there is none"),
        (
            {**AHEAD, "rollout__adapters": "alone", "rollout__servers": "[http://a]"},
            "servers take adapters only while nothing is generated",
        ),
        (
            {**AHEAD, "reward__iou": "{schedule: adaptive, thresholds: [0.5, 0.9], until: [], target: 0.5}"},
            "reward.iou is adaptive",
        ),
        (
            # The next step starts before this one is generated, with a staleness of 1 too.
            {
                **{**AHEAD, "rollout__staleness": 1},
                "reward__iou": "{schedule: adaptive, thresholds: [0.5, 0.9], until: [], target: 0.5}",
            },
            "reward.iou is adaptive",
        ),
    ],
)
def test_incompatible_settings_are_reported_before_the_run(
    given: dict[str, object], said: str, schooled: Path, lens: Path, tmp_path: Path
) -> None:
    ended = vtune(*rl(schooled, lens / "train.parquet", tmp_path / "run", *setting(**given)))
    assert ended.code == 2
    assert said in ended.err
    assert not (tmp_path / "run").exists()
