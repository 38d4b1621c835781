"""Grades for which a protocol asks a model, which reads or compares an evaluation's stored replies."""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from vtune.errors import RecipeError, ServiceError
from vtune.judge.client import JudgeClient
from vtune.judge.completions import NoVerdict
from vtune.judge.endpoint import BatchedEndpoint
from vtune.protocols.protocol import Grade, Judging, JudgingTogether, Rule, said
from vtune.report.progress import say
from vtune.runs.evaluate.unjudged import Key, all_judged, not_judged
from vtune.schema.sample import Sample
from vtune.sections import Strict

CACHE = "grader.jsonl"
"""File in an evaluation's folder: the model's replies by request."""
BATCH = "grader.batch.json"
"""File with the batches in progress."""


class Grader(BatchedEndpoint):
    """The model that reads and compares answers if a protocol asks for one."""

    temperature: float = Field(default=0.0, ge=0)
    max_tokens: int = Field(default=2048, gt=0)
    """Per reply, including reasoning; upstream uses 128 or 256, which leave no room for a reasoning model."""
    concurrency: int = Field(default=16, gt=0)
    retries: int = Field(default=6, ge=0)
    timeout_s: float = Field(default=120.0, gt=0)
    api_key_env: str | None = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer to be graded."""

    key: Key
    text: str
    sample: Sample


@dataclass(frozen=True, slots=True)
class Graded:
    """The results for replies."""

    grades: Mapping[Key, Grade] = field(default_factory=dict)
    unreadable: Mapping[Key, str] = field(default_factory=dict)
    """Why there is no grade: the model refused the question, or its reply cannot be read."""
    unjudged: Mapping[Key, str] = field(default_factory=dict)
    """Why there is no grade: the model did not reply, or may no longer be asked."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """`model`, SHA-256 of the `prompts`, whose `words` they are, and the cost."""
    not_attempted: frozenset[Key] = frozenset()
    """Replies in which the model found no attempt at an answer."""

    def as_result(self) -> dict[str, Any]:
        """The entry for results; empty if no model was asked."""
        return {"grader": dict(self.facts)} if self.facts else {}


class Judged(Strict):
    """The part of a suite that sets the grading model."""

    grader: Grader | None = None
    """Used if the protocol asks a model; null: only its rules."""


def check_grader(rule: Rule, grader: Grader | None, protocol: str) -> None:
    """Check that a protocol that needs a model has one.

    Raises:
        RecipeError: If it has none.
    """
    if rule.needs_judge and grader is None:
        raise RecipeError(
            f"protocol `{protocol}` has a model grade these questions, but the suite names none",
            fix="--set 'grader={base_url: …, model: …}', or --protocol vtune, which needs no model",
        )


def check_grader_answers(rule: Rule, grader: Grader | None, protocol: str) -> None:
    """Check that a grader responds; warn if nothing will ask it.

    A grader given for several suites or protocols may be meant for others, so this is not an error.

    Raises:
        ServiceError: If it does not answer.
        RecipeError: If its API key is not set.
    """
    if grader is None:
        return
    if rule.asks_model:
        from vtune.runs.agent.judge import check_answers  # loads cv2, which listing results does not need

        check_answers(grader, "grader")
    else:
        say(
            f"`grader` is not asked: protocol `{protocol}` needs no model to read the answers to these "
            "questions"
        )


def ungraded(asked: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluation's settings without the grader: another one may be used until there is a result."""
    return {**asked, "suite": {**asked["suite"], "grader": None}}


def same_grader(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the replies of one suite's grader are valid for another suite (`JudgeClient`)."""
    first, second = before.get("grader") or {}, now.get("grader") or {}
    return all(first.get(key) == second.get(key) for key in ("model", "temperature", "max_tokens"))


async def grade_replies(replies: Sequence[Reply], rule: Rule, grader: Grader, folder: Path) -> Graded:
    """The grades of replies by a rule that asks a model; requests answered in `folder` are not repeated.

    Args:
        replies: All replies of an evaluation, in the order of its questions.
        rule: A rule that asks a model.
        grader: The model.
        folder: The evaluation's folder.

    Raises:
        RecipeError: If the environment variable with the API key is not set.
        DataError: If the replies stored in `folder` cannot be read.
    """
    groups = _groups(replies, rule)
    async with JudgeClient(grader, cache=folder / CACHE, section="grader") as client:
        _say_how_many(groups, rule, client, grader.model)
        grade_all = partial(_grade_all, groups, rule, client)
        if grader.batch:
            state = folder / BATCH
            await client.ask_in_batches(grade_all, state=state, poll_s=grader.batch_poll_s, tell=say)
        found = await grade_all()
    results: list[tuple[Key, Grade | ServiceError]] = []
    for group, grades in zip(groups, found, strict=True):
        results += zip([reply.key for reply in group], _each(group, grades), strict=True)
    unreadable = {key: _remedied(one) for key, one in results if isinstance(one, NoVerdict)}
    failed_at = {key: one.what for key, one in results if isinstance(one, ServiceError)}
    return Graded(
        {key: one for key, one in results if isinstance(one, Grade)},
        unreadable,
        {key: why for key, why in failed_at.items() if key not in unreadable},
        {
            **client.facts(),
            "prompts": prompts_hash(rule),
            "words": rule.words,
            "unscored": sorted({name for name, _ in unreadable}),
        },
    )


def _remedied(error: NoVerdict) -> str:
    """Why nothing was read, with the fix if known: each reply may need a different one."""
    return f"{error.what}; {error.fix}" if error.fix else error.what


def prompts_hash(rule: Rule) -> str:
    """SHA-256, in hexadecimal, of the model's prompts, with placeholders for what varies."""
    texts = [[prompt.system, prompt.text] for prompt in rule.prompts]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def check_judged(graded: Graded, max_unscored: float, folder: Path, *, model: str = "grader") -> None:
    """Stop if replies were not judged; a later run asks only about those.

    Args:
        graded: All grades of an evaluation.
        max_unscored: Maximum share without a grade because the model's reply was unreadable.
        folder: The evaluation's folder; `unjudged.jsonl` lists those without a grade.
        model: The suite's key that names the model.

    Raises:
        RunFailed: If one was not judged, or too many of the model's replies are unreadable.
    """
    left = {**graded.unjudged, **graded.unreadable}
    total = len(graded.grades) + len(left)
    if not graded.unjudged and len(graded.unreadable) <= max_unscored * total:
        all_judged(folder)
        return
    why = next(iter((graded.unjudged or graded.unreadable).values()))
    raise not_judged(folder, left, total, why=why, model=model, unreadable=not graded.unjudged)


def _groups(replies: Sequence[Reply], rule: Rule) -> list[list[Reply]]:
    """Replies that the model is asked about together: single ones, or groups by the rule and the rollout."""
    if rule.together is None:
        return [[reply] for reply in replies]
    found: dict[tuple[int, str], list[list[Reply]]] = {}
    for reply in replies:
        groups = found.setdefault((reply.key[1], rule.together.by(reply.sample)), [[]])
        if len(groups[-1]) == rule.together.most:
            groups.append([])
        groups[-1].append(reply)
    return [group for groups in found.values() for group in groups]


def _say_how_many(groups: Sequence[Sequence[Reply]], rule: Rule, client: JudgeClient, model: str) -> None:
    """Print what the model is about to be asked, as it may cost money."""
    first = [(group, next(_begun(rule, group), None)) for group in groups]
    read = [(group, ask.prompt) for group, ask in first if ask is not None]
    new = sum(len(group) for group, prompt in read if not client.knows(prompt, ()))
    kept = sum(len(group) for group, _ in read) - new
    replies = "1 reply" if new == 1 else f"{new} replies"
    say(f"{model} is asked about {replies}" + (f"; what it said about {kept} is kept" if kept else ""))


async def _grade_all(
    groups: Sequence[Sequence[Reply]], rule: Rule, client: JudgeClient
) -> list[Sequence[Grade] | ServiceError]:
    return await asyncio.gather(*(_grade(group, rule, client) for group in groups))


async def _grade(group: Sequence[Reply], rule: Rule, client: JudgeClient) -> Sequence[Grade] | ServiceError:
    """The grades of replies that are asked about together, or why there are none."""
    judging = _begun(rule, group)
    try:
        ask = next(judging)
        while True:
            ask = judging.send(await client.ask_for(ask.prompt, (), ask.read, ask.wanted))
    except StopIteration as ended:
        grades: Sequence[Grade] = ended.value
        return grades
    except ServiceError as error:
        return error


def _begun(rule: Rule, group: Sequence[Reply]) -> JudgingTogether:
    if rule.together is not None:
        return rule.together.judge([(reply.text, reply.sample) for reply in group])
    if rule.judge is None:
        raise RuntimeError("a rule that asks no model was to be judged by one")
    (reply,) = group
    return _alone(rule.judge(reply.text, reply.sample))


def _alone(judging: Judging) -> JudgingTogether:
    grade = yield from judging
    return [grade]


def _each(group: Sequence[Reply], found: Sequence[Grade] | ServiceError) -> Sequence[Grade | ServiceError]:
    """The result for each reply of a group; an empty answer is wrong even if the model failed."""
    if not isinstance(found, ServiceError):
        return found
    return [found if reply.text.strip() else said(None, right=False) for reply in group]
