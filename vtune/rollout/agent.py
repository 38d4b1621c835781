"""The agent loop of CodeV §2.2 and §4.2: generate a turn, run it, show the observation, repeat."""

import asyncio
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from PIL import Image

from vtune.environments import name_of
from vtune.environments.environment import Act, Episode, Services, Start, Turn
from vtune.environments.opened import opened
from vtune.errors import BrokenPart, DataError, ServiceError, first_failure
from vtune.models.pictures import PictureReader
from vtune.rollout.blocking import Blocking
from vtune.rollout.call_record import call_of, recorded_as
from vtune.rollout.concurrency import PrioritySemaphore
from vtune.rollout.engine import Engine, Request, Sampling
from vtune.rollout.picture_prefetch import PrefetchedPictures
from vtune.rollout.prompts import ask
from vtune.rollout.recipe import Rollout
from vtune.rollout.stalls import Stalls
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.transcript import Speech, Transcript
from vtune.rollout.verdicts import Feedback, with_verdicts
from vtune.sandbox import Sandbox, image_names
from vtune.schema.message import Message, Picture
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, StopReason, Trajectory
from vtune.tools.observation import Observation, encodable
from vtune.tools.toolbox import Results, Toolbox
from vtune.verifiers.answer_instruction import ended
from vtune.verifiers.tags import answer

SHOWN = 120
"""Characters from the end of a turn that a message about it quotes; ours."""


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to generate."""

    sample: Sample
    images: tuple[bytes, ...]
    """The sample's encoded pictures."""
    group: int
    rollout: int
    policy_version: int
    key: tuple[int, ...]
    """Seeds sampling and the sandbox; unique in a run. Its last number is that of the rollout."""
    apart: bool = False
    """See `Request`."""


class Agent:
    """Runs conversations between an engine and the samples' environments.

    Args:
        engine: Generates the turns.
        sandbox: Runs the code; its capacity limits how many conversations run at a time.
        chat: The policy's turns as tokens, or `Words`.
        pictures: Turns pictures into the policy's input.
        recipe: How conversations are generated.
        observation_transform: Applied to tool pictures before the policy sees them; evaluation passes a
            function that blackens them, to prove that they are used.
        waiting: Stopwatch that runs while conversations wait for their environments.
        tools: The tools that samples may offer besides `python`.
        feedback: What the policy is told about its looks; None: nothing.
        warn: Takes a one-line warning about a call that does not end or blocks the event loop; called from
            any thread.
    """

    def __init__(
        self,
        engine: Engine,
        sandbox: Sandbox,
        chat: Speech,
        pictures: PictureReader,
        recipe: Rollout,
        observation_transform: Callable[[bytes], bytes] | None = None,
        waiting: Stopwatch | None = None,
        tools: Toolbox | None = None,
        feedback: Feedback | None = None,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._engine = engine
        self._sandbox = sandbox
        self._chat = chat
        self._pictures = pictures
        self._recipe = recipe
        self._observation_transform = observation_transform
        self._waiting = waiting or Stopwatch()
        self._tools = tools or Toolbox({})
        self._feedback = feedback
        self._stalls = Stalls(warn)
        self._blocking = Blocking(warn)
        self._closing: set[asyncio.Task[None]] = set()
        """Clean-up tasks that run in the background."""
        self._places: PrioritySemaphore | None = None
        self._turns = sandbox.turns
        self._runs = count()
        self._lost = 0

    async def run(
        self,
        jobs: Sequence[Job],
        done: Callable[[], None] = lambda: None,
        ended: Callable[[Job, Trajectory], None] = lambda job, trajectory: None,
    ) -> list[Trajectory]:
        """Run all conversations, in the order of the jobs; `done` is called after each, and `ended` with it.

        Each continues as soon as its own turn or tool is done, whatever the others do; as many run at a time
        as the batch and the sandbox can hold, and the next one starts when one ends. Among several concurrent
        runs the oldest has priority for what becomes free. An environment that fails ends its trajectory with
        `stop_reason` "error"; it is never scored. Calls of one turn run concurrently, and the same call
        within a group is made once.
        """
        # Another run may add tasks in the meantime, and cancelling this wait must not cancel the tasks.
        closing = set(self._closing)
        await asyncio.shield(asyncio.gather(*closing))
        self._closing -= closing
        found: dict[int, Trajectory] = {}
        results, order = Results(), next(self._runs)
        room = self.room
        self._places = self._places or PrioritySemaphore(room)  # once open, the sandbox knows its capacity
        cohorts = min(self._engine.cohorts, room, len(jobs))
        lanes = []
        for cohort in range(cohorts):
            # Neighbouring jobs stay in one cohort: they share a prompt, which is prefilled once.
            share = range(cohort * len(jobs) // cohorts, (cohort + 1) * len(jobs) // cohorts)
            left = iter([(number, jobs[number]) for number in share])
            width = (cohort + 1) * room // cohorts - cohort * room // cohorts
            lanes += [(cohort, left)] * min(width, len(share))
        for cohort, _ in lanes:
            self._engine.join(cohort)
        try:
            with first_failure(), self._blocking.watched():
                async with asyncio.TaskGroup() as tasks:
                    for cohort, left in lanes:
                        tasks.create_task(self._lane(cohort, left, found, results, order, done, ended))
        finally:
            await results.clear()
        # Yield to the loop once, so that the last sessions are told to end.
        await asyncio.sleep(0)
        return [found[number] for number in range(len(jobs))]

    @property
    def room(self) -> int:
        """Conversations that may run concurrently."""
        return min(self._recipe.conversations, self._sandbox.capacity)

    @property
    def sessions(self) -> int:
        """Sandbox sessions that are alive now."""
        return self._sandbox.live

    def take_lost(self) -> int:
        """Sessions that the sandbox has lost since the last call of this method; each was recreated."""
        lost, self._lost = self._lost, 0
        return lost

    def _lost_one(self) -> None:
        self._lost += 1

    async def _lane(
        self,
        cohort: int,
        left: Iterator[tuple[int, Job]],
        found: dict[int, Trajectory],
        results: Results,
        order: int,
        done: Callable[[], None],
        ended: Callable[[Job, Trajectory], None],
    ) -> None:
        """Run one conversation after another, until the cohort has no jobs left."""
        assert self._places is not None
        try:
            async with self._places.taken(order):
                for number, job in left:
                    found[number] = await self._one(job, cohort, results, done)
                    ended(job, found[number])
        finally:
            self._engine.leave(cohort)

    async def _one(self, job: Job, cohort: int, results: Results, done: Callable[[], None]) -> Trajectory:
        seen = PrefetchedPictures(self._pictures)
        book = Transcript(self._chat, seen)
        outcome, sandbox = None, ""
        try:
            await self._turns.next()
            await self._load(job, seen)
            async with opened(self._start(job, seen, results)) as episode:
                sandbox = episode.sandbox
                stop = await self._converse(job, cohort, book, episode, seen)
                outcome = await episode.outcome() if stop != "error" else None
        except ServiceError as error:
            stop, outcome = "error", None
            self._note_failure(job.sample, book, str(error))
        except BrokenPart as failed:
            if (row := f"sample {job.sample.id!r}") not in failed.what:
                failed.what = f"{failed.what} ({row})"
            raise
        done()  # not called for a cancelled conversation: it has not ended
        return replace(_record(job, book, stop), sandbox=sandbox, outcome=outcome)

    def _start(self, job: Job, seen: PrefetchedPictures, results: Results) -> Start:
        services = Services(
            sandbox=self._sandbox,
            tools=self._tools,
            results=results,
            pictures=seen,
            lost=self._lost_one,
            later=lambda work: self._closing.add(asyncio.create_task(work)),
        )
        seed = abs(hash(job.key)) % 2**32
        return Start(sample=job.sample, images=job.images, seed=seed, group=job.group, services=services)

    async def _converse(
        self, job: Job, cohort: int, book: Transcript, episode: Episode, seen: PrefetchedPictures
    ) -> StopReason:
        recipe = self._recipe
        await self._turns.next()
        self._open(job, book, episode.opening)
        if book.length >= recipe.max_tokens:
            # The policy was never asked, so this is not a wrong answer.
            raise ServiceError(
                f"sample {job.sample.id!r}: the prompt has {book.length} tokens, and rollout.max_tokens is "
                f"{recipe.max_tokens}: raise it, lower images.max_pixels, or drop the row"
            )
        for turn in range(recipe.max_turns):
            room = recipe.max_tokens - book.length
            if room <= 0:
                return "context"
            completion = await self._engine.generate(self._request(job, cohort, book, turn, room, episode))
            await self._turns.next()
            text = book.wrote(completion)
            if completion.finish == "length":
                return "context" if room <= recipe.max_new_tokens else "length"
            said = Turn(
                text=text,
                stopped=completion.finish == "stop",
                last=turn == recipe.max_turns - 1,
                pictures=[picture.data or b"" for picture in book.images],
            )
            with self._waiting, self._stalls.waiting(_asked(job.sample, said)):
                acts = await episode.observe(said)
            if acts is None:
                return "answer"
            images = [await self._shown(act.seen, seen) for act in acts]
            await self._turns.next()
            if self._feedback is not None:
                with self._waiting:
                    acts = await with_verdicts(self._feedback, acts, job.sample, book)
            if stop := self._append(acts, images, said, job.sample, book):
                return stop
        return "turns"

    def asked(self, job: Job) -> tuple[Message, ...]:
        """The turns before the policy's first turn, without what an environment adds.

        Raises:
            DataError: If a picture is not an image.
        """
        sizes = [size_of(data) for data in job.images]
        schemas = self._tools.schemas(job.sample.tools)
        # Without the rollout's number: all rollouts of a group answer the same question.
        draw = hash(job.key[:-1])
        return ask(self._recipe.prompt, job.sample, image_names(job.images), sizes, schemas, draw=draw)

    def _open(self, job: Job, book: Transcript, opening: Observation | None) -> None:
        """Add the turns before the policy's first turn."""
        try:
            turns = self.asked(job)
            if opening is not None:
                turns = ended(turns, opening.text)
            book.open(turns, (*job.images, *(opening.images if opening is not None else ())))
        except DataError as error:
            raise DataError(error.what, where=f"sample {job.sample.id!r}", fix=error.fix) from None

    def _request(
        self, job: Job, cohort: int, book: Transcript, turn: int, room: int, episode: Episode
    ) -> Request:
        return Request(
            token_ids=tuple(book.token_ids),
            pixels=tuple(book.pixels),
            sampling=Sampling(
                temperature=self._recipe.temperature,
                max_new_tokens=min(self._recipe.max_new_tokens, room),
                stop=episode.stop,
            ),
            key=(*job.key, turn),
            cohort=cohort,
            messages=tuple(book.messages),
            question=job.sample.id,
            apart=job.apart,
        )

    def _append(
        self,
        acts: Sequence[Act],
        images: Sequence[Sequence[bytes]],
        said: Turn,
        sample: Sample,
        book: Transcript,
    ) -> StopReason | None:
        """Add the result of a turn to the transcript; returns why the conversation ends, if it does."""
        spans = book.spans([len(said.text) if act.end is None else act.end for act in acts]) if acts else []
        calls, first = [], len(book.images)
        for act, span in zip(acts, spans, strict=True):
            calls.append(call_of(act.tool or recorded_as(sample), act.arguments, act.seen, span, first))
            first += len(act.seen.images)
        text = "\n".join(act.seen.text for act in acts)
        stop: StopReason | None = None
        if any(call.status == "infra" for call in calls):
            stop = "error"
        elif said.last:
            stop = "turns"
        elif self._overflows(book, text, images):
            stop = "context"
        if stop is None:
            book.returned(text, list(zip(calls, images, strict=True)))
        else:
            # The policy never sees the results of these calls.
            for call in calls:
                book.ran(replace(call, crops=(), unseen=True))
        return stop

    def _overflows(self, book: Transcript, text: str, images: Sequence[Sequence[bytes]]) -> bool:
        shown = [data for of_one in images for data in of_one]
        return book.length + book.observation_length(text, shown) >= self._recipe.max_tokens

    async def _shown(self, observation: Observation, seen: PrefetchedPictures) -> tuple[bytes, ...]:
        """Load the pictures of an observation as the policy will see them, and return them."""
        images, transform = observation.images, self._observation_transform
        if transform is not None:
            images = tuple([await self._pictures.beside(transform, data) for data in images])
        await self._turns.next()  # small pictures are read in the loop itself
        await seen.load(images)
        return images

    async def _load(self, job: Job, seen: PrefetchedPictures) -> None:
        """Load a sample's pictures.

        A picture with a valid header but a corrupt body fails only its own row: it must not end the run or
        affect other rows.
        """
        try:
            await seen.load(job.images)
        except DataError as error:
            raise ServiceError(f"sample {job.sample.id!r}: {error.what}") from None

    def _note_failure(self, sample: Sample, book: Transcript, why: str) -> None:
        start = book.last_turn if book.token_ids and any(book.loss_mask) else (0, 0)
        book.calls.append(
            Call(tool=recorded_as(sample), arguments="{}", status="infra", error=encodable(why), span=start)
        )


def _asked(sample: Sample, said: Turn) -> str:
    """What a turn asks of its environment, as text for a message."""
    return f"the environment {name_of(sample)!r}, sample {sample.id!r}, to {said.text[-SHOWN:]!r}"


def _record(job: Job, book: Transcript, stop: StopReason) -> Trajectory:
    record = Trajectory(
        sample_id=job.sample.id,
        source=job.sample.source,
        group=job.group,
        rollout=job.rollout,
        policy_version=job.policy_version,
        messages=tuple(book.messages),
        images=tuple(book.images) or tuple(Picture(data=data) for data in job.images),
        calls=tuple(book.calls),
        token_ids=tuple(book.token_ids),
        loss_mask=tuple(book.loss_mask),
        logprobs=tuple(book.logprobs),
        weight_versions=tuple(book.weight_versions),
        entropies=tuple(book.entropies) if any(one is not None for one in book.entropies) else (),
        stop_reason=stop,
    )
    return replace(record, answer=answer(record.reply))


def black(data: bytes) -> bytes:
    """A black picture of the same size: what a policy sees when its crops are taken away."""
    out = io.BytesIO()
    Image.new("RGB", size_of(data)).save(out, "PNG")
    return out.getvalue()
