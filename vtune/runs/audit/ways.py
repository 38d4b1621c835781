"""How an audit judges what calls show: by the recipe's judges, by boxes, or by one or more models."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from vtune.errors import RecipeError
from vtune.judge.budget import Budget, Purse
from vtune.judge.endpoint import BatchedEndpoint
from vtune.judge.prompts import looks_hash
from vtune.metrics.agreement import Agreement, agreement
from vtune.metrics.calibration import Calibration, Judged, calibration, majority
from vtune.reward import evidence_boxes, evidence_model
from vtune.reward.audit import AuditRow
from vtune.reward.evidence_judge import AUTO, BOTH, EVIDENCE
from vtune.reward.recipe import RewardRecipe

API_KEY = "OPENAI_API_KEY"
"""Environment variable with the key of a judge named on the command line; many local ones need none."""

BASE = "base"
"""Name of the way, among those to judge, that numbers are based on."""
SEARCH = "search"
"""Ability of questions to search agents, as in their formats."""
MAJORITY = "majority"
"""Name for the majority of several models."""


@dataclass(frozen=True, slots=True)
class Way:
    """One judge of all trajectories."""

    name: str
    reward: RewardRecipe
    """Includes the model to ask, if any."""
    only: str | None
    """The only judge to ask; None: the recipe's judges."""
    purse: Purse = field(init=False)
    """Counts what its model uses, within the judge's budget."""

    def __post_init__(self) -> None:
        judge = self.reward.judge
        purse = Purse(Budget(), None) if judge is None else Purse(judge.budget, judge.prices)
        object.__setattr__(self, "purse", purse)

    @property
    def asks_model(self) -> bool:
        """Whether the way is only a model."""
        return self.only is not None and EVIDENCE[self.only].asks_model

    @property
    def asked(self) -> dict[str, Any] | None:
        """Which model it asks about looks, how, and SHA-256 of the prompt; None if it asks none."""
        judge = self.reward.judge
        if judge is None or not (self.only is None or self.asks_model):
            return None
        return {
            "model": judge.model,
            "base_url": judge.base_url,
            "temperature": judge.temperature,
            "max_tokens": judge.max_tokens,
            "prompt": looks_hash(),
        }


def ways_of(
    looks: str, reward: RewardRecipe, urls: Sequence[str], models: Sequence[str], *, settings: str
) -> list[Way]:
    """The ways requested on the command line; numbers are based on the first.

    Args:
        looks: `auto`, `both` or the name of a judge.
        reward: The recipe's reward.
        urls: Endpoints of judges: one for all models, or one for each.
        models: Their names; empty: the recipe's judge.
        settings: The file that the recipe was read from.

    Raises:
        RecipeError: If there is no such judge, a model is needed but none is named, or several models are
            named where only one is asked.
    """
    rewards = _with_judges(reward, urls, models)
    if looks == AUTO:
        if len(rewards) > 1:
            raise RecipeError(
                f"--looks {AUTO} asks one model, and {len(rewards)} are named",
                fix=f"add --looks {evidence_model.NAME}, or --looks {BOTH} to compare them with boxes",
            )
        return [Way(AUTO, rewards[0], None)]
    if looks in EVIDENCE and EVIDENCE[looks].reads_text:
        rewards = [_of_searches(one) for one in rewards]
    names = (evidence_boxes.NAME, evidence_model.NAME) if looks == BOTH else (looks,)
    if names[0] not in EVIDENCE:
        known = [AUTO, *EVIDENCE, BOTH]
        what = f"{looks!r} is not one of {', '.join(known)}"
        raise RecipeError(what, where="--looks", fix=EVIDENCE.meant(looks, AUTO, BOTH))
    found = []
    for name in names:
        for one in rewards if EVIDENCE[name].asks_model else rewards[:1]:
            asked = one.judge is not None and EVIDENCE[name].asks_model and len(rewards) > 1
            found.append(Way(one.judge.model if asked and one.judge else name, one, name))
    if any(way.reward.judge is None and way.asks_model for way in found):
        raise RecipeError(
            "there is no model to ask", where=settings, fix="name it with --judge-url and --judge-model"
        )
    return found


def _of_searches(reward: RewardRecipe) -> RewardRecipe:
    """The recipe, extended so that questions to search agents also need a look."""
    levels = reward.evidence
    abilities = tuple(dict.fromkeys([*levels.search_abilities, SEARCH]))
    evidence = levels.model_copy(update={"search_abilities": abilities})
    return reward.model_copy(update={"evidence": evidence})


def _with_judges(reward: RewardRecipe, urls: Sequence[str], models: Sequence[str]) -> list[RewardRecipe]:
    """The recipe with each judge named on the command line; unchanged if there are none."""
    if not models:
        return [reward]
    if len(urls) not in (1, len(models)):
        raise RecipeError(
            f"{len(models)} judge models for {len(urls)} endpoints",
            fix="give one --judge-url for all of them, or one for each --judge-model, in the same order",
        )
    if len(set(models)) < len(models):
        raise RecipeError("a judge is named twice", where="--judge-model", fix="name each once")
    if taken := {BASE, MAJORITY, *EVIDENCE} & set(models) if len(models) > 1 else set():
        raise RecipeError(
            f"a judge among several cannot be called {min(taken)!r}: that name is reserved",
            fix="serve it under another name",
        )
    return [
        reward.model_copy(update={"judge": _endpoint(url, model)})
        for url, model in zip(urls if len(urls) > 1 else [urls[0]] * len(models), models, strict=True)
    ]


def _endpoint(url: str, model: str) -> BatchedEndpoint:
    try:
        return BatchedEndpoint(
            base_url=url,
            model=model,
            temperature=0.0,  # as in CodeV's evaluation script
            max_tokens=4096,  # ours: room for a judge that reasons; CodeV's script has 500
            concurrency=16,
            retries=5,
            timeout_s=60.0,
            api_key_env=API_KEY if API_KEY in os.environ else None,
        )
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise RecipeError(why, where="--judge-url", fix="write http://HOST:PORT/v1") from None


def together(rows: Sequence[Sequence[AuditRow]]) -> list[AuditRow]:
    """The majority verdict of several judges on each trajectory.

    The verdicts are on whole trajectories: nothing is known about single calls, except whether most judges
    find one that the conversation itself accepts.

    Args:
        rows: Rows of each judge, on the same trajectories.
    """
    found = []
    for of_one in zip(*rows, strict=True):
        said = majority(row.any_faithful for row in of_one)
        why = next((row.why for row in of_one if row.any_faithful is None), "as many judges say yes as no")
        unscored = of_one[0].why if of_one[0].correct is None else ""
        found.append(
            replace(
                of_one[0],
                any_faithful=said,
                small=False,
                helpful=None,
                first=None,
                accepted=majority(row.accepted for row in of_one),
                judged=any(row.judged for row in of_one),
                silent=said is None and any(row.silent for row in of_one),
                why=why if said is None else unscored,
            )
        )
    return found


def against_boxes(
    by_boxes: Sequence[AuditRow], judges: Mapping[str, Sequence[AuditRow]], *, seed: int
) -> dict[str, Calibration]:
    """The calibration of each judge (`vtune.metrics.calibration`) on the same trajectories; boxes are the
    truth.

    Trajectories that a judge was not asked about are left out: shared rules decide that they show nothing, so
    any judge would be right about them.
    """
    found = {}
    for name, rows in judges.items():
        judged = [
            Judged(
                cluster=box.cluster,
                correct=box.correct,
                target=box.target,
                said=row.any_faithful,
                truth=box.any_faithful,
            )
            for box, row in zip(by_boxes, rows, strict=True)
            if row.judged
        ]
        found[name] = calibration(judged, seed=seed)
    return found


def agreed(by_boxes: Sequence[AuditRow], rows: Sequence[AuditRow]) -> Agreement:
    """How far a model and boxes agree, on trajectories that the model was asked about."""
    return agreement(
        (a.any_faithful, b.any_faithful) for a, b in zip(by_boxes, rows, strict=True) if b.judged
    )


def by_rule(rows: Iterable[AuditRow]) -> int:
    """Number of trajectories with calls that a model was not asked about, as none of the calls are looks."""
    return sum(bool(row.calls) and row.any_faithful is False and not row.judged for row in rows)
