"""The loop of CodeV §2.2 and §4.2: think, write code or call tools, look at what came back, again, answer."""

import asyncio
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from PIL import Image
from pydantic import Field

from vtune.config import Strict
from vtune.errors import DataError, ServiceError
from vtune.models.chat import Chat
from vtune.models.pictures import PictureReader
from vtune.rollout.engine import Engine, Request, Sampling
from vtune.rollout.prompts import Style, ask
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.transcript import Transcript
from vtune.sandbox import Sandbox, ShownCrop, image_names
from vtune.schema.message import Picture
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Crop, StopReason, Trajectory
from vtune.tools import zoom
from vtune.tools.calls import Asked, read_calls, tool_response
from vtune.tools.lasting import LastingSession
from vtune.tools.observation import Observation, sandbox_output
from vtune.tools.python import NAME as PYTHON
from vtune.tools.python import run_python
from vtune.tools.tool import Scene, View
from vtune.tools.toolbox import Results, Toolbox, arguments_of
from vtune.verifiers.tags import answer, tagged


class Rollout(Strict):
    """How conversations are drawn."""

    prompt: Style
    temperature: float = Field(ge=0)
    max_turns: int = Field(gt=0)
    """Turns of the policy, the answer included."""
    max_new_tokens: int = Field(gt=0)
    """In one turn."""
    max_tokens: int = Field(gt=0)
    """In the whole conversation, pictures included."""
    max_batch: int = Field(gt=0)
    """Turns that are drawn at the same time."""


class TrainingRollout(Rollout):
    """The same in training, where weights change."""

    engine: Literal["transformers", "vllm"]
    """What draws: the model that is trained itself, or vLLM."""
    servers: tuple[str, ...]
    """URLs of vLLM servers; none: vLLM runs in every training process."""
    gpu_memory: float = Field(gt=0, lt=1)
    """Share of a GPU that a vLLM in the training process may take."""
    staleness: Literal[0, 1]
    """Steps by which the weights that draw may be behind; 1: the next step is drawn while one trains."""


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to be made."""

    sample: Sample
    images: tuple[bytes, ...]
    """The sample's encoded pictures."""
    group: int
    rollout: int
    policy_version: int
    key: tuple[int, ...]
    """Seeds the draw and the sandbox; unique in a run. Its last number is that of the rollout."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A call and what came of it."""

    call: Call
    text: str
    """As the policy reads it, framed."""
    images: tuple[bytes, ...]
    """As the policy sees them."""


class Agent:
    """Runs conversations between an engine, a sandbox and other tools. What a sample offers decides which.

    Args:
        engine: Draws the turns.
        sandbox: Runs the code.
        chat: The policy's turns as tokens.
        pictures: The policy's eyes.
        recipe: How conversations are drawn.
        look: What the policy is shown of a tool's picture; evaluation passes a function that
            blackens it, to prove that the picture is used.
        waiting: Runs while conversations wait for the sandbox.
        tools: What samples may offer beside `python`.
    """

    def __init__(
        self,
        engine: Engine,
        sandbox: Sandbox,
        chat: Chat,
        pictures: PictureReader,
        recipe: Rollout,
        look: Callable[[bytes], bytes] | None = None,
        waiting: Stopwatch | None = None,
        tools: Toolbox | None = None,
    ) -> None:
        self._engine = engine
        self._sandbox = sandbox
        self._chat = chat
        self._pictures = pictures
        self._recipe = recipe
        self._look = look
        self._waiting = waiting or Stopwatch()
        self._tools = tools or Toolbox({})
        self._closing: set[asyncio.Task[None]] = set()
        """Sessions that end while something else is done."""
        self._lost = 0

    async def run(
        self,
        jobs: Sequence[Job],
        done: Callable[[], None] = lambda: None,
        ended: Callable[[Job, Trajectory], None] = lambda job, trajectory: None,
    ) -> list[Trajectory]:
        """All conversations, in the order of the jobs; `done` is called after each, and `ended` with it.

        Each goes on as soon as its own turn or tool is done, whatever the others do; as many run at a time
        as the batch and the sandbox hold, and the next begins when one ends.
        A sandbox or a tool that fails ends its trajectory with `stop_reason` "error"; it is never scored.
        Calls of one turn run at the same time, and the same call of one group is made once.
        """
        if self._closing:
            await asyncio.gather(*self._closing)
            self._closing.clear()
        found: dict[int, Trajectory] = {}
        results = Results()
        room = min(self._recipe.max_batch, self._sandbox.capacity)
        cohorts = min(self._engine.cohorts, room, len(jobs))
        lanes = []
        for cohort in range(cohorts):
            # Neighbours stay together: they share a prompt, which is read once.
            share = range(cohort * len(jobs) // cohorts, (cohort + 1) * len(jobs) // cohorts)
            left = iter([(number, jobs[number]) for number in share])
            width = (cohort + 1) * room // cohorts - cohort * room // cohorts
            lanes += [(cohort, left)] * min(width, len(share))
        for cohort, _ in lanes:
            self._engine.join(cohort)
        try:
            async with asyncio.TaskGroup() as tasks:
                for cohort, left in lanes:
                    tasks.create_task(self._lane(cohort, left, found, results, done, ended))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        finally:
            await results.clear()
        # Once round, so that the last sessions are told to end.
        await asyncio.sleep(0)
        return [found[number] for number in range(len(jobs))]

    def take_lost(self) -> int:
        """Sessions that the sandbox has lost since the last time this was asked; each was made again."""
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
        done: Callable[[], None],
        ended: Callable[[Job, Trajectory], None],
    ) -> None:
        """One conversation after the other, until none of its cohort is left."""
        try:
            for number, job in left:
                found[number] = await self._one(job, cohort, results, done)
                ended(job, found[number])
        finally:
            self._engine.leave(cohort)

    async def _one(self, job: Job, cohort: int, results: Results, done: Callable[[], None]) -> Trajectory:
        opening: asyncio.Task[LastingSession] | None = None
        book = Transcript(self._chat, self._pictures)
        try:
            if PYTHON in job.sample.tools:
                # The session gets ready while the first turn is drawn.
                opening = asyncio.create_task(
                    LastingSession.open(
                        self._sandbox, job.images, seed=abs(hash(job.key)) % 2**32, lost=self._lost_one
                    )
                )
                # It begins now, not when this conversation first waits.
                await asyncio.sleep(0)
            stop = await self._converse(job, cohort, book, opening, results)
        except ServiceError as error:
            stop = "error"
            self._note_failure(book, str(error))
        finally:
            if opening is not None:
                self._closing.add(asyncio.create_task(_close(opening)))
            done()
        return replace(_record(job, book, stop), sandbox=self._sandbox.tier if opening else "")

    async def _converse(
        self,
        job: Job,
        cohort: int,
        book: Transcript,
        opening: asyncio.Task[LastingSession] | None,
        results: Results,
    ) -> StopReason:
        recipe = self._recipe
        unreadable = self._unreadable(job)
        if unreadable:
            self._note_failure(book, unreadable)
            return "error"
        sizes = [_size(data) for data in job.images]
        names = image_names(job.images)
        offered = self._tools.names(job.sample.tools)
        schemas = self._tools.schemas(offered)
        try:
            # The number of the rollout apart: a group answers one question.
            draw = hash(job.key[:-1])
            book.open(ask(recipe.prompt, job.sample, names, sizes, schemas, draw=draw), job.images)
        except DataError as error:
            raise DataError(error.what, where=f"sample {job.sample.id!r}", fix=error.fix) from None
        shown_size = self._pictures.shown_size
        views = [View(data, n, None, shown_size(data)) for n, data in enumerate(job.images)]
        for turn in range(recipe.max_turns):
            room = recipe.max_tokens - len(book.token_ids)
            if room <= 0:
                return "context"
            sampling = Sampling(
                temperature=recipe.temperature,
                max_new_tokens=min(recipe.max_new_tokens, room),
                stop=("</code>",) if opening else (),
            )
            request = Request(
                token_ids=tuple(book.token_ids),
                pixels=tuple(book.pixels),
                sampling=sampling,
                key=(*job.key, turn),
                cohort=cohort,
            )
            completion = await self._engine.generate(request)
            text = book.wrote(completion)
            if completion.finish == "length":
                return "context" if room <= recipe.max_new_tokens else "length"
            code = tagged(text, "code") if opening is not None and completion.finish == "stop" else None
            # Who answers has no more to ask.
            asked = read_calls(text, offered) if offered and code is None and "</answer>" not in text else []
            if code is None and not asked:
                return "answer"
            if turn == recipe.max_turns - 1:
                return "turns"
            with self._waiting:
                if code is not None and opening is not None:
                    steps = [await self._run_code(code, await opening, book)]
                else:
                    scene = Scene(job.sample, job.images, tuple(views))
                    steps = await self._ask(asked, scene, job.group, book, results)
            if any(step.call.status == "infra" for step in steps):
                for step in steps:
                    book.ran(replace(step.call, crops=()))
                return "error"
            seen = "\n".join(step.text for step in steps)
            images = [data for step in steps for data in step.images]
            if len(book.token_ids) + book.observation_length(seen, images) >= recipe.max_tokens:
                for step in steps:
                    book.ran(replace(step.call, crops=()))
                return "context"
            known = len(book.calls)
            book.returned(seen, [(step.call, step.images) for step in steps])
            for call in book.calls[known:]:
                views += self._views(call, book, views)
        return "turns"

    async def _run_code(self, code: str, session: LastingSession, book: Transcript) -> _Step:
        seen = self._readable(await run_python(session, code))
        if seen.status == "infra":
            raise ServiceError(f"the sandbox failed: {seen.error}")
        call = _call(PYTHON, json.dumps({"code": code}), seen, book.last_turn, len(book.images))
        return _Step(call, seen.text, self._looked_at(seen))

    async def _ask(
        self, asked: Sequence[Asked], scene: Scene, group: int, book: Transcript, results: Results
    ) -> list[_Step]:
        """All calls of one turn, at the same time."""
        found = await asyncio.gather(*(self._tools.run(one, scene, group, results) for one in asked))
        steps = []
        first = len(book.images)
        spans = book.spans([one.end for one in asked])
        for one, answered, span in zip(asked, found, spans, strict=True):
            seen = self._usable(answered)
            call = _call(one.tool, arguments_of(one), seen, span, first)
            steps.append(_Step(call, tool_response(seen.text), self._looked_at(seen)))
            first += len(seen.images)
        return steps

    def _looked_at(self, seen: Observation) -> tuple[bytes, ...]:
        return tuple(self._look(data) if self._look else data for data in seen.images)

    def _views(self, call: Call, book: Transcript, before: Sequence[View]) -> list[View]:
        """The pictures of a call, for later calls; a zoom's crop is a region of what it was cut out of."""
        found = []
        regions = {crop.shown: crop for crop in call.crops} if call.tool == zoom.NAME else {}
        for number in call.images:
            data = book.images[number].data or b""
            size = self._pictures.shown_size(data)
            crop = regions.get(number)
            if crop is not None:
                found.append(View(before[crop.image].data, crop.image, crop.bbox, size))
            else:
                found.append(View(data, number, None, size))
        return found

    def _unreadable(self, job: Job) -> str:
        """What is wrong with a sample's pictures, empty where nothing is.

        A row whose picture has a good head and no good body is not worth a run, nor its other rows.
        """
        try:
            for data in job.images:
                self._pictures.read(data)
        except DataError as error:
            return f"sample {job.sample.id!r}: {error.what}"
        return ""

    def _usable(self, seen: Observation) -> Observation:
        """The observation, or our failure in its place where a tool's picture cannot be decoded."""
        try:
            for data in seen.images:
                self._pictures.read(data)
        except DataError as error:
            return Observation(text="", status="infra", error=f"a tool returned no picture: {error.what}")
        return seen

    def _readable(self, seen: Observation) -> Observation:
        """The observation, or an error in its place where code forged a picture that nobody can decode."""
        try:
            for data in seen.images:
                self._pictures.read(data)
        except DataError as error:
            text = sandbox_output(error.what)
            return replace(seen, status="error", error=error.what, text=text, images=(), crops=())
        return seen

    def _note_failure(self, book: Transcript, why: str) -> None:
        start = book.last_turn if book.token_ids and any(book.loss_mask) else (0, 0)
        book.calls.append(Call(tool=PYTHON, arguments="{}", status="infra", error=why, span=start))


async def _close(opening: "asyncio.Task[LastingSession]") -> None:
    """End a session, also one that is not there yet."""
    opening.cancel()
    try:
        session = await opening
    except (ServiceError, DataError, asyncio.CancelledError):
        # It never came to be; where that mattered, it has been said.
        return
    await session.close()


def _call(tool: str, arguments: str, seen: Observation, span: tuple[int, int], first: int) -> Call:
    """The record of a call.

    Args:
        tool: Its name.
        arguments: As JSON.
        seen: What came of it.
        span: Its tokens.
        first: Number that its first picture gets.
    """
    return Call(
        tool=tool,
        arguments=arguments,
        status=seen.status,
        error=seen.error,
        output=seen.output,
        crops=recorded(seen.crops, first),
        seconds=seen.seconds,
        span=span,
    )


def recorded(crops: Iterable[ShownCrop], first: int) -> tuple[Crop, ...]:
    """What a call showed as a trajectory holds it, where the call's first picture has number `first`."""
    return tuple(
        Crop(
            image=crop.image,
            bbox=crop.bbox,
            shown=None if crop.shown is None else first + crop.shown,
            matrix=crop.matrix,
        )
        for crop in crops
    )


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
        stop_reason=stop,
    )
    return replace(record, answer=answer(record.reply))


def _size(data: bytes) -> tuple[int, int]:
    return size_of(data)


def black(data: bytes) -> bytes:
    """A black picture of the same size: what a policy sees when its crops are taken away."""
    out = io.BytesIO()
    Image.new("RGB", _size(data)).save(out, "PNG")
    return out.getvalue()
