"""How hard a sample is for a model, by rollouts that are generated once and kept."""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from vtune.curate.difficulty import certain, outside, settled
from vtune.curate.item import Item, asked_key, concerns, digest, input_pictures, judged_key
from vtune.environments import DEFAULT, name_of
from vtune.errors import DataError, ServiceError
from vtune.judge.client import JudgeClient
from vtune.judge.graders import compare
from vtune.models.pictures import PictureReader
from vtune.models.source import resolved
from vtune.parts import Kind
from vtune.report.progress import Steps
from vtune.reward.score import failure_of
from vtune.rollout.agent import Agent, Job
from vtune.rollout.prompts import ask
from vtune.runs.agent.kinds import check_temperature, check_vllm
from vtune.runs.agent.opening import load_fixed, open_fixed
from vtune.runs.agent.served import check_model, kind_of
from vtune.runs.agent.tools import check_asking, check_indexes
from vtune.runs.curate.pass_rate_rows import with_parm
from vtune.runs.curate.prints import model_print, tools_print
from vtune.runs.curate.recipe import PassRate
from vtune.runs.curate.results import Results
from vtune.runs.curate.review import REPLIES, Opinions, too_many
from vtune.runs.curate.rows import chunks
from vtune.schema.message import Picture
from vtune.schema.pixels import decode_picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Outcome, Trajectory
from vtune.schema.verdict import Verdict
from vtune.tools import TOOLS
from vtune.tools.image_search import cached_search
from vtune.uses import prints
from vtune.verifiers import VERIFIERS, check_ground_truth
from vtune.verifiers.environment_reward import with_outcome
from vtune.verifiers.spaces import answers_in_shown_pixels, with_shown_size
from vtune.verifiers.verifying import Verifying

CHUNK = 256
"""Number of samples whose rollouts are generated together (ours): enough to keep an engine busy, few enough
that their pictures fit in memory."""
DRAWING: tuple[Kind, ...] = ("tool", "environment", "prompt", "family")
"""Kinds of parts that can change a reply: if a custom one changes, rollouts are generated again."""


@dataclass(frozen=True, slots=True)
class Posed:
    """A sample as posed to the model."""

    place: tuple[str, int]
    """Source and position."""
    sample: Sample
    pictures: tuple[bytes, ...]
    key: str
    """Hash of everything that its replies depend on, except the rollout's number."""


def check_pass_rate(spec: PassRate) -> None:
    """Check, before anything is read, that model, engine and indexes are available.

    Raises:
        MissingExtra: If vLLM is needed but not installed.
        DataError: If the model's tokenizer cannot be loaded, or an index of its tools is missing.
        ServiceError: If its endpoint does not answer.
        RecipeError: If vLLM cannot return log-probabilities for its temperature.
    """
    if spec.engine == "vllm":
        check_vllm()
        check_temperature(spec.rollout.temperature, key="rollout.temperature of pass_rate")
    kind_of(spec.model, spec.engine)
    check_model(resolved(spec.model), spec.openai, spec.rollout)
    check_indexes(spec.tools)
    check_asking(spec.tools)


async def measure_all(
    spec: PassRate,
    items: Iterator[tuple[int, Item]],
    folder: Path,
    *,
    rows: int,
    sandbox: bool,
    progress: Steps,
) -> Opinions:
    """Generate rollouts for every row that the filter looks at, score them, and compare them with the band,
    until too many are unscored.

    Nothing already in `folder` is generated or scored again; the model is only loaded if something is
    missing.

    Args:
        spec: The filter.
        items: (position, row) of the remaining rows of all sources.
        folder: Where replies and scores are kept.
        rows: Number of remaining rows.
        sandbox: Whether code may run for any of them (`check_rows`).
        progress: Advanced by one step per row.
    """
    found = Opinions()
    async with _Sampler(spec, folder, sandbox=sandbox) as rollouts:
        for batch in chunks(items, CHUNK):
            await _measure(spec, found, rollouts, batch)
            for _ in batch:
                progress.advance()
            if too_many(len(found.unscored), spec.max_unscored, rows):
                break
    return found


async def _measure(
    spec: PassRate, found: Opinions, rollouts: "_Sampler", batch: Sequence[tuple[int, Item]]
) -> None:
    chosen = []
    for position, item in batch:
        if concerns(spec, item):
            place = item.source, position
            found.asked[place] = item.sample.id
            try:
                check_ground_truth(with_parm(spec, item.sample))
                pictures = tuple(input_pictures(item))
                for data in pictures:
                    _check_picture(data)
            except DataError as error:
                found.dropped[place] = error.what
            else:
                chosen.append((place, item.sample, pictures))
    if spec.first is not None:
        posed = [rollouts.pose(*entry, tools=False) for entry in chosen]
        first = await rollouts.scores(posed, spec.first.rollouts, found)
        offered = {place: sample.tools for place, sample, _ in chosen}
        for place, scores in first.items():
            reason = settled(spec.first, scores)
            if reason is not None:
                found.dropped[place] = reason
                found.notes[place] = sum(scores) / len(scores)
            elif _same_conversations(spec, offered[place]) and certain(spec.band, scores, spec.rollouts):
                found.notes[place] = sum(scores) / len(scores)
        known = found.dropped.keys() | found.notes.keys()
        chosen = [entry for entry in chosen if entry[0] in first and entry[0] not in known]
    posed = [rollouts.pose(*entry, tools=spec.tools is not None) for entry in chosen]
    for place, scores in (await rollouts.scores(posed, spec.rollouts, found)).items():
        found.notes[place] = sum(scores) / len(scores)
        reason = outside(spec.band, scores)
        if reason is not None:
            found.dropped[place] = reason


def _check_picture(data: bytes) -> None:
    """Check that a picture can be decoded: in a conversation, a broken one would stop all others."""
    decode_picture(data, None)


def _same_conversations(spec: PassRate, tools: Sequence[str]) -> bool:
    """Whether the first pass generates the same conversations as the full number would."""
    return spec.tools is None or not tools


class _Sampler:
    """Generates and scores rollouts, each only once; an async context manager that owns the engine."""

    def __init__(self, spec: PassRate, folder: Path, *, sandbox: bool) -> None:
        self._spec = spec
        self._folder = folder
        self._sandbox = sandbox
        self._open = AsyncExitStack()
        self._agent: Agent | None = None
        self._pictures: PictureReader | None = None
        self._client: JudgeClient | None = None
        self._failures: dict[str, str] = {}
        """Rollout key -> why the rollout has no reply."""
        self._settings: dict[str, Any] = {
            "model": model_print(resolved(spec.model)),
            "engine": spec.engine,
            "seed": spec.seed,
            "dtype": spec.dtype,
            "images": spec.images.model_dump(mode="json"),
            "rollout": spec.rollout.model_dump(mode="json", exclude={"max_batch", "max_conversations"}),
            "sandbox": spec.sandbox.model_dump(mode="json"),
        }
        if spec.engine == "openai":
            drawn_by = {"top_p", "side_multiple", "picture_mb"}
            self._settings["openai"] = spec.openai.model_dump(mode="json", include=drawn_by)
        if own := prints(DRAWING):
            self._settings["uses"] = own
        self._found = tools_print(spec.tools)

    async def __aenter__(self) -> Self:
        self._replies = self._open.enter_context(Results(self._folder / "replies.jsonl"))
        self._scores = self._open.enter_context(Results(self._folder / "scores.jsonl"))
        self._verifying = await self._open.enter_async_context(Verifying())
        if self._spec.judge is not None:
            client = JudgeClient(self._spec.judge, cache=self._folder / REPLIES)
            self._client = await self._open.enter_async_context(client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    def pose(
        self, place: tuple[str, int], sample: Sample, pictures: tuple[bytes, ...], *, tools: bool
    ) -> Posed:
        """Apply the filter's options to a sample, and remove its tools unless `tools`."""
        sample = replace(with_parm(self._spec, sample), tools=sample.tools if tools else ())
        settings = self._settings
        if any(TOOLS[name].opened is not None for name in sample.tools if name in TOOLS):
            settings = settings | {"tools": self._found, "cached": cached_search(sample)}
        if name_of(sample) != DEFAULT:
            settings = settings | {"environment": sample.environment}
        # The turns are in the key because the verifier decides on the form of answer that a prompt asks for.
        # Names and sizes depend on the pictures, and `draw` on the rollout, both of which are in the key
        # anyway.
        names, sizes = [str(n) for n in range(len(pictures))], [(1, 1)] * len(pictures)
        turns = ask(self._spec.rollout.prompt, sample, names, sizes, draw=0)
        settings = settings | {"turns": [[turn.role, turn.content] for turn in turns]}
        return Posed(place, sample, pictures, asked_key(sample, pictures, settings))

    async def scores(
        self, posed: Sequence[Posed], count: int, found: Opinions
    ) -> dict[tuple[str, int], list[float]]:
        """Place -> accuracy of each of `count` rollouts, for all samples that could be scored.

        The others are recorded as dropped (ground truth unreadable) or unscored (something failed).
        """
        await self._draw(posed, count)
        lists = await asyncio.gather(*[self._of_one(entry, count) for entry in posed])
        scored = {}
        for entry, scores in zip(posed, lists, strict=True):
            if isinstance(scores, DataError):
                found.dropped[entry.place] = scores.what
            elif isinstance(scores, ServiceError):
                found.unscored[entry.place] = scores.what
            else:
                scored[entry.place] = scores
        return scored

    async def _draw(self, posed: Sequence[Posed], count: int) -> None:
        """Generate what is missing. A reply is stored as soon as its conversation ends."""
        missing: dict[str, Job] = {}
        for entry in posed:
            group = int(entry.key[:12], 16)
            for number in range(count):
                key = _rollout_key(entry.key, number)
                if key not in self._replies and key not in missing:
                    missing[key] = Job(
                        sample=entry.sample,
                        images=entry.pictures,
                        group=group,
                        rollout=number,
                        policy_version=0,
                        key=(self._spec.seed, 0, group, number),
                    )
        if not missing:
            return
        keys = {id(job): key for key, job in missing.items()}

        def keep(job: Job, trajectory: Trajectory) -> None:
            if trajectory.stop_reason == "error":
                self._failures[keys[id(job)]] = failure_of(trajectory)
            else:
                kept: dict[str, Any] = {
                    "reply": trajectory.reply,
                    "stop": trajectory.stop_reason,
                    "calls": len(trajectory.calls),
                }
                if self._pictures is not None and job.images and answers_in_shown_pixels(job.sample):
                    kept["shown"] = self._pictures.shown_size(job.images[0])
                if trajectory.outcome is not None:
                    kept["outcome"] = [trajectory.outcome.score, trajectory.outcome.why]
                self._replies.put(keys[id(job)], kept)

        agent = self._agent or await self._start()
        await agent.run(list(missing.values()), ended=keep)

    async def _of_one(self, entry: Posed, count: int) -> list[float] | DataError | ServiceError:
        scores = []
        for number in range(count):
            key = _rollout_key(entry.key, number)
            judge = self._spec.judge
            asked = judge and [judge.model, judge.temperature, judge.max_tokens]
            own = prints([VERIFIERS.kind])
            judged = digest([judged_key(key, entry.sample), asked, *([own] if own else [])])
            score = self._scores.get(judged)
            if score is None:
                kept = self._replies.get(key)
                if kept is None:
                    return ServiceError(self._failures.get(key, f"rollout {number} failed"))
                sample = with_shown_size(entry.sample, kept["shown"]) if "shown" in kept else entry.sample
                sample = with_outcome(sample, Outcome(*kept["outcome"]) if "outcome" in kept else None)
                shown = tuple(Picture(data=picture) for picture in entry.pictures)
                judge_of = None if self._client is None else partial(self._same_answer, pictures=shown)
                try:
                    score = (await self._verifying.verify(kept["reply"], sample, judge=judge_of)).score
                except (DataError, ServiceError) as error:
                    return error
                self._scores.put(judged, score)
            scores.append(float(score))
        return scores

    async def _same_answer(
        self, answer: str, sample: Sample, pictures: Sequence[Picture] = ()
    ) -> bool | Verdict | None:
        if self._client is None:
            raise RuntimeError("there is no judge to ask")
        return await compare(self._client, answer, sample, pictures)

    async def _start(self) -> Agent:
        """Load the model and start what its rollouts need."""
        spec = self._spec
        model = resolved(spec.model)
        policy = load_fixed(spec, model, kind=spec.engine)
        opening = open_fixed(spec, policy, model, self._folder, kind=spec.engine, runs_code=self._sandbox)
        self._agent = await self._open.enter_async_context(opening)
        self._pictures = policy.pictures
        return self._agent


def _rollout_key(asked: str, number: int) -> str:
    return hashlib.sha256(f"{asked} {number}".encode()).hexdigest()
