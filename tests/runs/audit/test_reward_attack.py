"""Attacks on the evidence reward: programs that once earned full marks for nothing must not do so again."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import vtune.runs.audit.reward_attack as reward_attack
from tests.conftest import ROOT
from vtune.config import find, load_recipe
from vtune.runs.audit.looks import Question, Trials, Tried, questions, scorer_of
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.sandbox import Sandbox
from vtune.sandbox.attacks.programs import Program, Shot, Step, from_record, random_program
from vtune.sandbox.attacks.programs.honest import HONEST
from vtune.sandbox.attacks.programs.hostile import HOSTILE
from vtune.sandbox.attacks.programs.sources import SOURCES

FINDS: list[dict[str, Any]] = json.loads((ROOT / "tests/runs/audit/reward_attack/claimed.json").read_text())
PLAIN = Step("png", (0.0, 0.0, 0.0, 0.0))
MIDDLE = (0.5, 0.5, 0.5, 0.5)


class Attacked:
    """A running sandbox with its event loop, and the scores of programs in it."""

    def __init__(self, runner: asyncio.Runner, sandbox: Sandbox) -> None:
        self.runner = runner
        self.sandbox = sandbox

    def tried(self, asked: Sequence[tuple[Program, Question]], looks: str = "verified") -> list[Tried]:
        """The result of each program on its puzzle."""
        chosen = [f"reward.evidence.looks={looks}"]
        recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, chosen)

        async def run() -> list[Tried]:
            async with scorer_of(recipe.reward, recipe.images) as scorer:
                return await Trials(self.sandbox, scorer, recipe.reward, recipe.images).all(asked)

        return self.runner.run(run())


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    with asyncio.Runner() as runner:
        sandbox = runner.run(Sandbox(warm=4).__aenter__())
        yield Attacked(runner, sandbox)
        runner.run(sandbox.__aexit__(None, None, None))


def finds() -> list[tuple[Program, Question]]:
    asked = questions(1, 2, seed=1)
    return [(from_record(find["program"]), question) for find in FINDS for question in asked]


def test_found_attacks_earned_full_marks_by_claims_though_illegible(
    attacked: Attacked,
) -> None:
    assert len(FINDS) >= 10
    found = attacked.tried(finds(), looks="claimed")
    paid = [any((call.score or 0.0) > 0.25 and not call.readable for call in one.calls) for one in found]
    assert all(any(paid[n : n + 2]) for n in range(0, len(paid), 2))


def test_found_attacks_now_earn_no_more_than_a_miss(attacked: Attacked) -> None:
    for (program, question), one in zip(finds(), attacked.tried(finds()), strict=True):
        for call in one.calls:
            assert call.score is not None
            assert call.score <= 0.25, (program.names, question.sample.id, call)


def test_no_random_hostile_program_earns_full_marks_for_illegible_pictures(attacked: Attacked) -> None:
    rng = random.Random(0)
    asked = questions(1, 3, seed=2) + questions(2, 3, seed=2)
    drawn = [(random_program(rng, blind=n % 3 == 0, honest=0.0), rng.choice(asked)) for n in range(40)]
    for (program, question), one in zip(drawn, attacked.tried(drawn), strict=True):
        for call in one.calls:
            assert call.score is None or call.score < 1.0 or call.readable, (program, question.sample.id)


def test_an_honest_crop_is_legible_and_rewarded(attacked: Attacked) -> None:
    program = Program(((Shot(Step("target", (0.0,) * 4), (), PLAIN),),))
    for one in attacked.tried([(program, question) for question in questions(1, 3, seed=3)]):
        (call,) = one.calls
        assert call.readable
        assert call.due
        assert call.score == 1.0


def test_every_operation_runs_in_the_sandbox(attacked: Attacked) -> None:
    question = questions(2, 1, seed=4)[0]
    source = Step("target", (0.0,) * 4)
    shots = [Shot(source, (Step(name, MIDDLE),), PLAIN) for name in (*HONEST, *HOSTILE)]
    shots += [Shot(Step(name, MIDDLE), (), PLAIN) for name in SOURCES]
    assert len(shots) > 100
    # Four calls per session: starting and ending one takes longer than most of them.
    programs = [Program(tuple((shot,) for shot in shots[n : n + 4])) for n in range(0, len(shots), 4)]
    found = attacked.tried([(program, question) for program in programs])
    calls = [call for one in found for call in one.calls]
    failed = [
        Program(((shot,),)).names
        for shot, call in zip(shots, calls, strict=True)
        if (call.status, call.pictures) != ("ok", 1)
    ]
    assert failed == []


def test_a_small_attack_reports_its_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_attack, "FINAL", 3)
    monkeypatch.setattr(reward_attack, "BATCH", 2)
    result = reward_attack.run_reward_attack(
        programs=6, generations=1, population=6, seed=0, isolation="auto", claimed=True
    )
    assert result["random"]["programs"] == 6
    assert result["random"]["paid_unreadable"]["of"] == 6
    assert result["search"]["tried"] == 12
    assert result["looks"] == "claimed"


def test_the_calls_behind_the_counts_can_be_viewed(attacked: Attacked) -> None:
    result = reward_attack.run_reward_attack(
        programs=40, generations=0, population=6, seed=0, isolation="auto", claimed=True
    )
    cases = result["random"]["cases"]
    fooled = [case for case in cases if case["what"] == "paid_unreadable"]
    assert (
        len({case["program_number"] for case in fooled}) == result["random"]["paid_unreadable"]["count"] > 0
    )
    unpaid = [case for case in cases if case["what"] == "honest_unpaid"]
    assert len(unpaid) == result["random"]["honest_unpaid"]["count"]
    case = fooled[0]
    _, level, seed, _, number = case["question"].split("/")
    question = questions(int(level), int(number) + 1, seed=int(seed))[int(number)]
    assert question.sample.id == case["question"]
    program = from_record(case["program"])
    (one,) = attacked.tried([(program, question)], looks="claimed")
    assert one.codes[case["call"]] == case["code"]
    assert one.calls[case["call"]].score == case["score"] == 1.0
    assert "full" in case["why"]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_questions(seed: int) -> None:
    first, again = (questions(1, 2, seed=seed) for _ in range(2))
    assert [question.sample for question in first] == [question.sample for question in again]
