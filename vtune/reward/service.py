"""The reward service: `reward/score.py` behind HTTP, so that local and remote runs cannot disagree."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError
from starlette.types import ASGIApp

from vtune.errors import DataError, RunFailed, ServiceError, VtuneError
from vtune.judge.client import JudgeClient
from vtune.reward.body import Bodies, Busy
from vtune.reward.counts import Counts
from vtune.reward.evidence import Judges
from vtune.reward.guard import Guard, Packed
from vtune.reward.items import read_item
from vtune.reward.recipe import RewardRecipe
from vtune.reward.refusals import answer_errors, error_row
from vtune.reward.released import JudgeRequest, rewards_of, sample_of
from vtune.reward.score import Scored, score_trajectory
from vtune.reward.wire import recipe_of, scores_of, settings_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.uses import broken
from vtune.verifiers import VERIFIERS, verifier_of
from vtune.verifiers.detection import with_iou
from vtune.verifiers.verifying import Verifying

ITEMS = 1024
"""Limit on trajectories per request; ours."""

REPLIES = 100_000
"""Number of the judge's replies that are cached; ours: some ten megabytes."""

ASKED = "POST /score, POST /judge, GET /health or GET /metrics"
"""The endpoints of a service."""

OK, WRONG, FAILED, BUSY = 200, 422, 500, 503
"""HTTP status of one trajectory: scored; the input cannot be scored; something failed here; no room."""

GONE = Response()
"""The answer for a client that has disconnected; nobody reads it."""

Read = tuple[Sample, Trajectory] | Exception
"""An item as read, or the error from reading it."""

LOG = logging.getLogger(__name__)


class Service:
    """Scores the trajectories in requests; it owns the workers and the judge client while it is `running`.

    Args:
        recipe: Scores requests without a `reward` section; its judge is the only one that is ever asked.
        workers: Number of processes for verifiers that may run long or crash.
    """

    def __init__(self, recipe: RewardRecipe | None, *, workers: int) -> None:
        self._recipe = recipe
        self._settings = None if recipe is None else settings_of(recipe)
        self._endpoint = None if recipe is None else recipe.judge
        self._client = None if self._endpoint is None else JudgeClient(self._endpoint, most=REPLIES)
        self._verifying = Verifying(workers=workers)
        self._workers = workers
        self._latest: tuple[dict[str, Any], RewardRecipe] | None = None
        """The settings of the latest request, and the recipe made from them."""
        self._judges: Judges | None = None
        """Those of the latest request, kept because opening a judge may be costly."""
        self.counts = Counts()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Requests can be answered within this context."""
        async with self._verifying:
            if self._client is None:
                yield
                return
            async with self._client:
                yield

    def start_workers(self) -> None:
        """Start the workers before they are needed, so that they are ready in time."""
        tuple(VERIFIERS.values())  # imports their modules
        self._verifying.start()

    def health(self) -> dict[str, Any]:
        """What the service is and what it can judge."""
        return {
            "status": "ok",
            "verifiers": sorted(VERIFIERS),
            "workers": self._workers,
            "judge": None if self._settings is None else self._settings["judge"],
        }

    async def answer(self, asked: "Asked") -> tuple[int, dict[str, Any]]:
        """(HTTP status, answer) for a request with one trajectory, or with several under `items`.

        With `items` the status is always 200, and each item has its own status, in order.
        """
        results = await self._all(asked.items, asked.recipe)
        if asked.many:
            return OK, {"results": results}
        return results[0].pop("status"), results[0]

    def read(self, request: Any) -> "Asked":
        """Parse and check a request.

        Raises:
            VtuneError: If the request as a whole is wrong.
        """
        if not isinstance(request, dict):
            raise DataError("the request is not a JSON object", fix='send {"sample": {…}, "reply": "…"}')
        request = dict(request)
        own = not request.get("reward")
        settings = request.pop("reward", None) or self._settings
        if settings is None:
            raise DataError(
                "the request has no reward section, and the service has no recipe",
                fix="send the reward section of a recipe as `reward`, or start the service with --recipe",
            )
        if not isinstance(settings, dict):
            raise DataError("`reward` is not a JSON object", fix="send the reward section of a recipe")
        recipe = self._recipe_of(settings)
        if own and self._recipe is not None:
            recipe = recipe.model_copy(update={"iou": self._recipe.iou})
        if "items" not in request:
            return Asked([_read(request)], recipe, many=False)
        items = request.pop("items")
        if request:
            raise DataError(f"unknown key `{min(request)[:60]}` beside `items`", fix="known: items, reward")
        if not isinstance(items, list) or len(items) > ITEMS:
            raise DataError(f"`items` is a list of at most {ITEMS}", fix="send fewer at once")
        return Asked([_read(item) for item in items], recipe, many=True)

    def _recipe_of(self, settings: dict[str, Any]) -> RewardRecipe:
        """The recipe for these settings, cached because runs send the same settings with every request."""
        latest = self._latest  # a thread may be reading another request
        if latest is None or settings != latest[0]:
            self._latest = latest = settings, recipe_of(settings, self._endpoint)
        return latest[1]

    async def judge(self, request: JudgeRequest) -> dict[str, Any]:
        """The answer to a request in the format of V-Triune's server.

        Raises:
            DataError: If it cannot be judged.
            ServiceError: If a worker or the judge failed.
        """
        began = time.monotonic()
        recipe, verifier = self._recipe, ""
        try:
            sample = sample_of(request, None if recipe is None else recipe.iou)
            verifier = sample.verifier
            ask = None if recipe is None else Judges(recipe.evidence, self._client).same_answer
            verdict = await self._verifying.verify(request.response, sample, judge=ask)
            rewards = rewards_of(request, verdict)
        except Exception as error:
            status = status_of(error) if isinstance(error, VtuneError) else FAILED
            self.counts.add(verifier, status, time.monotonic() - began)
            raise
        self.counts.add(verifier, OK, time.monotonic() - began)
        return {"rewards": rewards}

    async def _all(self, items: Sequence[Read], recipe: RewardRecipe) -> list[dict[str, Any]]:
        if len(items) == 1:  # by far the most common request: a separate task would only cost time
            try:
                return [await self._one(items[0], recipe)]
            except Exception as error:  # noqa: BLE001 - a bug is reported, as below
                return [self._bug(error)]
        # A bug that one item triggers affects that item only: the others are answered.
        found = await asyncio.gather(*(self._one(item, recipe) for item in items), return_exceptions=True)
        return [self._bug(one) if isinstance(one, BaseException) else one for one in found]

    async def _one(self, item: Read, recipe: RewardRecipe) -> dict[str, Any]:
        began = time.monotonic()
        try:
            if isinstance(item, Exception):
                raise item
            sample, trajectory = item
            fixed = recipe.iou is not None and recipe.iou.schedule in ("fixed", "average")
            if recipe.iou is not None and fixed and verifier_of(sample).reads_iou:
                sample = with_iou(sample, recipe.iou.thresholds)
        except VtuneError as error:
            self.counts.add("", WRONG, time.monotonic() - began)
            return {"status": WRONG, "reward": None, "error": error_row(error)}
        judges = self._judges_of(recipe)
        scored = await score_trajectory(sample, trajectory, recipe, self._verifying, judges)
        result = _result(scored, sample)
        self.counts.add(sample.verifier, result["status"], time.monotonic() - began)
        return result

    def _judges_of(self, recipe: RewardRecipe) -> Judges:
        """The judges of a recipe, opened once for consecutive requests with the same recipe."""
        client = None if recipe.judge is None else self._client
        if self._judges is None or not self._judges.are(recipe.evidence, client):
            self._judges = Judges(recipe.evidence, client)
        return self._judges

    def _bug(self, error: BaseException) -> dict[str, Any]:
        LOG.error("a trajectory could not be scored", exc_info=error)
        self.counts.add("", FAILED, 0.0)
        bug = error if isinstance(error, RunFailed) else broken(error)
        if bug is not None:
            # A user's own part is broken: a training run stops, just as if it scored locally.
            return {"status": FAILED, "reward": None, "error": error_row(bug), "broken": True}
        ours = ServiceError(f"the service failed: {type(error).__name__}: {error}", fix="see its log")
        return {"status": FAILED, "reward": None, "error": error_row(ours)}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to score."""

    items: Sequence[Read]
    recipe: RewardRecipe
    many: bool
    """Whether the trajectories came under `items`."""


def _read(item: Any) -> Read:
    try:
        return read_item(item)
    except Exception as error:  # noqa: BLE001 - a bug that one item meets is its own: the others are scored
        return error


def app_of(service: Service, *, token: str | None, max_bytes: int) -> ASGIApp:
    """The ASGI application of a service.

    Args:
        service: Must be running while the application handles requests.
        token: What requests must send; None admits all.
        max_bytes: Limit on the body of a request.
    """
    app = FastAPI(title="vtune reward service")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return service.health()

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.counts.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/")
    async def root() -> dict[str, str]:
        return {"message": "Reward Judge Server"}  # by which V-Triune's client recognises the server

    answer_errors(app, asked=ASKED, status_of=status_of)

    async def scored(body: bytes) -> Response:
        status, answer = await service.answer(await bodies.parse(body, service.read))
        return Packed(answer, status)

    async def judged(body: bytes) -> Response:
        return Packed(await service.judge(await bodies.parse(body, _judge_request)))

    bodies = Bodies()

    @app.post("/score")
    async def score(request: Request) -> Response:
        return await bodies.read(request.receive, scored) or GONE

    @app.post("/judge")
    async def judge(request: Request) -> Response:
        return await bodies.read(request.receive, judged) or GONE

    return Guard(app, token=token, max_bytes=max_bytes)


def _judge_request(asked: Any) -> JudgeRequest:
    """Validate a request to /judge.

    Raises:
        DataError: Names the wrong keys.
    """
    try:
        return JudgeRequest.model_validate(asked)
    except ValidationError as error:
        raise _malformed(error) from None


def _malformed(error: ValidationError) -> DataError:
    """What is wrong with a request to /judge."""
    problems = []
    for problem in error.errors(include_url=False, include_input=False):
        key = ".".join(map(str, problem["loc"]))
        problems.append(f"`{key}`: {problem['msg']}" if key else str(problem["msg"]))
    keys = [
        name if field.is_required() else f"{name} (may lack)"
        for name, field in JudgeRequest.model_fields.items()
    ]
    return DataError("; ".join(problems), fix=f"send a JSON object with {', '.join(keys)}")


def status_of(error: VtuneError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, Busy):
        return BUSY
    return FAILED if isinstance(error, ServiceError | RunFailed) else WRONG


def _result(scored: Scored, sample: Sample) -> dict[str, Any]:
    """The answer for one trajectory: its scores, and an error if they have no total."""
    scores = scores_of(scored.trajectory)
    if scores["reward"]["total"] is not None:
        return {"status": OK, "error": None} | scores
    fix = scored.fix if sample.verifier in VERIFIERS else VERIFIERS.meant(sample.verifier)
    error = DataError(scores["reward"]["why"], fix=fix)
    silent = {"silent": True} if scored.silent else {}
    return {"status": FAILED if scored.again else WRONG, "error": error_row(error)} | silent | scores
