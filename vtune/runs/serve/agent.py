"""`vtune serve agent`: an agent with its tools behind an OpenAI-compatible chat endpoint."""

import asyncio
import itertools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from vtune.config import find, load_recipe
from vtune.errors import DataError, RecipeError, ServiceError, VtuneError
from vtune.files.writing import check_folder_output
from vtune.models.pictures import PictureReader
from vtune.models.source import resolved
from vtune.reward.body import Bodies, Busy
from vtune.reward.guard import Guard, Packed
from vtune.reward.refusals import answer_errors
from vtune.rollout.agent import Agent, Job, black
from vtune.runs.agent.kinds import Kind, check_vllm
from vtune.runs.agent.opening import load_fixed, open_fixed
from vtune.runs.agent.served import check_model, kind_of
from vtune.runs.agent.tools import check_asking, check_encoders, check_indexes, check_tools
from vtune.runs.evaluate.suite import AGENTS, AgentRecipe
from vtune.runs.interpreter import responsive
from vtune.runs.serve.chat import Asked, Content, completion_of, events_of, read_request, sample_of
from vtune.runs.serve.listening import Binding, listen, serve_until_stopped, url_of
from vtune.runs.serve.rewards import check_token
from vtune.schema.message import Message
from vtune.schema.trajectory import Trajectory

SEED = 0
"""Sampling seed, ours: an agent has no seed, and the order of requests is random anyway."""

ASKED = "POST /v1/chat/completions, GET /v1/models or GET /health"
"""The requests that the service answers."""

GONE = Response()
"""Response to a client that has hung up, so nobody reads it."""


def read_agent(name: str, overrides: list[str]) -> AgentRecipe:
    """The settings of a shipped agent by name, or of any agent by path.

    Raises:
        RecipeError: If there is no such file, a section is wrong, or it does not say which tools it offers.
    """
    settings = load_recipe(find(name, AGENTS), AgentRecipe, overrides)
    if settings.offers is None:
        raise RecipeError(
            f"{name} leaves the choice of tools to the samples, but a request does not name any",
            fix="name them: --set 'offers=[python]', or --set 'offers=[]' for none",
        )
    return settings


def run_agent(
    settings: AgentRecipe,
    model: str,
    at: Binding,
    *,
    name: str,
    content: Content,
    kind: Kind,
    out: Path,
    ready: Callable[[dict[str, Any]], None],
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; running conversations get some time to finish.

    Args:
        settings: How conversations are generated.
        model: Folder or hub name, or `openai:URL#model`.
        at: Where it listens, and what it accepts there.
        name: The name by which clients call the agent.
        content: What part of a conversation is returned.
        kind: The kind of engine.
        out: Folder for the answers of the web, and the cost of an endpoint's turns.
        ready: Called with `url`, `token` (whether one is needed) and what /health reports, once it listens.

    Raises:
        VtuneError: If the agent cannot run like this, `out` cannot be written, a required token is missing,
            or the address cannot be bound.
    """
    check_token(at.host, at.token)
    check_folder_output(out)
    model = resolved(model)
    kind = kind_of(model, kind)
    if kind == "vllm":
        check_vllm()
    check_indexes(settings.tools)
    check_encoders(settings.tools)
    check_asking(settings.tools)
    probe = Asked(name, (Message("user", "?"),), (), stream=False, stream_usage=False)
    sample = sample_of(probe, 0, tools=settings.offers or (), answer_in=settings.answer_in)
    check_tools([sample], settings.tools, settings.rollout.prompt)
    check_model(model, settings.openai, settings.rollout)
    with listen(at.host, at.port) as listener:
        serving = _serve(
            settings, model, at, listener, name=name, content=content, kind=kind, out=out, ready=ready
        )
        asyncio.run(serving)


async def _serve(
    settings: AgentRecipe,
    model: str,
    at: Binding,
    listener: socket.socket,
    *,
    name: str,
    content: Content,
    kind: Kind,
    out: Path,
    ready: Callable[[dict[str, Any]], None],
) -> None:
    policy = load_fixed(settings, model, kind=kind)
    look = black if settings.call_images == "black" else None
    # Conversations are seeded separately: other clients' requests do not affect what is generated.
    opening = open_fixed(settings, policy, model, out, kind=kind, observation_transform=look)
    async with opening as agent:
        service = AgentService(agent, policy.pictures, settings, name=name, content=content)
        app = app_of(service, token=at.token, max_bytes=at.max_bytes)
        facts = {"url": url_of(listener), "token": at.token is not None} | service.health()
        with responsive():
            await serve_until_stopped(app, listener, lambda: ready(facts))


class AgentService:
    """Runs conversations for requests, as many at a time as the agent has room for; the others wait.

    Args:
        agent: An open agent.
        pictures: Its picture reader.
        settings: The settings that it was opened with.
        name: The name by which clients call it.
        content: What part of a conversation is returned.
    """

    def __init__(
        self, agent: Agent, pictures: PictureReader, settings: AgentRecipe, *, name: str, content: Content
    ) -> None:
        self._agent = agent
        self._pictures = pictures
        self._settings = settings
        self._name = name
        self._content = content
        self._room = asyncio.Semaphore(agent.room)
        self._numbers = itertools.count()
        self._running = 0
        self._waiting = 0

    def health(self) -> dict[str, Any]:
        """What it is, and the numbers of conversations and of live sandbox sessions."""
        return {
            "status": "ok",
            "model": self._name,
            "room": self._agent.room,
            "running": self._running,
            "waiting": self._waiting,
            "sessions": self._agent.sessions,
        }

    def models(self) -> dict[str, Any]:
        """The only model, in OpenAI's form."""
        return {"object": "list", "data": [self.model(self._name)]}

    def model(self, name: str) -> dict[str, Any]:
        """The model, looked up by name.

        Raises:
            UnknownModel: If the name is not that of this model.
        """
        self._check_name(name)
        return {"id": self._name, "object": "model", "created": 0, "owned_by": "vtune"}

    async def answer(self, asked: Asked) -> dict[str, Any]:
        """The chat completion of a request.

        Raises:
            UnknownModel: If it asks for another model.
            TooLong: If the agent has no room for it.
            DataError: If one of its pictures cannot be read.
            ServiceError: If something failed here: engine, sandbox or tool.
        """
        self._check_name(asked.model)
        for number, data in enumerate(asked.images):
            await asyncio.to_thread(self._check, number, data)
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        self._running += 1
        try:
            trajectory = await self._converse(asked)
        finally:
            self._running -= 1
            self._room.release()
        if trajectory.stop_reason == "error":
            self._check_length(trajectory)
            raise ServiceError(f"the conversation failed: {trajectory.calls[-1].error}", fix="ask again")
        drawn = self._settings.model_dump(mode="json", include={"rollout", "images", "call_images"})
        return completion_of(trajectory, model=self._name, content=self._content, settings=drawn)

    async def _converse(self, asked: Asked) -> Trajectory:
        number = next(self._numbers)
        settings = self._settings
        sample = sample_of(asked, number, tools=settings.offers or (), answer_in=settings.answer_in)
        key = (SEED, 0, number, 0)
        job = Job(sample=sample, images=asked.images, group=number, rollout=0, policy_version=0, key=key)
        (trajectory,) = await self._agent.run([job])
        return trajectory

    def _check_length(self, failed: Trajectory) -> None:
        """Check that the reason for a failure is not a prompt that leaves no room for a reply."""
        prompt, most = len(failed.token_ids), self._settings.rollout.max_tokens
        if prompt >= most and not any(failed.loss_mask):
            raise TooLong(
                f"the conversation has {prompt} tokens, but this agent has room for {most}, "
                "including its reply",
                fix="send fewer or shorter turns, or fewer or smaller pictures; whoever runs the agent can "
                "raise rollout.max_tokens",
            )

    def _check_name(self, name: str) -> None:
        if name != self._name:
            raise UnknownModel(
                f"there is no model {name[:80]!r}", fix=f"the model here is called {self._name!r}"
            )

    def _check(self, number: int, data: bytes) -> None:
        try:
            self._pictures.read(data)
        except DataError as error:
            raise DataError(error.what, where=f"picture {number}", fix="send PNG or JPEG") from None


class UnknownModel(DataError):
    """A request for a model that does not exist here."""


class TooLong(DataError):
    """A conversation that leaves no room for a reply."""


def app_of(service: AgentService, *, token: str | None, max_bytes: int) -> ASGIApp:
    """The ASGI application of a service.

    Args:
        service: Answers while its agent is open.
        token: Required in every request; None accepts all requests.
        max_bytes: Size limit of a request.
    """
    app = FastAPI(title="vtune agent")
    bodies = Bodies()

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return service.health()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return service.models()

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return service.model(name)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        async def answered(body: bytes) -> Response:
            asked = await bodies.parse(body, read_request)
            completion = await service.answer(asked)
            if asked.stream:
                data = events_of(completion, usage=asked.stream_usage)
                return Response(data, media_type="text/event-stream")
            return Packed(completion)

        return await bodies.read(request.receive, answered) or GONE

    answer_errors(app, asked=ASKED, status_of=status_of, body_of=error_body)
    return Guard(app, token=token, max_bytes=max_bytes, worded=_as_openai)


_CODES = {UnknownModel: "model_not_found", TooLong: "context_length_exceeded"}
"""OpenAI's error codes, which clients react to."""


def status_of(error: VtuneError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, UnknownModel):
        return 404
    if isinstance(error, Busy):
        return 503
    if isinstance(error, TooLong):
        return 400
    return 422 if isinstance(error, DataError) else 500


def error_body(error: VtuneError) -> dict[str, Any]:
    """An error in OpenAI's form, with its place and the remedy."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    return _body(status_of(error), error.what, error.fix, param=error.where or None, code=code)


def _as_openai(status: int, what: str, fix: str) -> dict[str, Any]:
    return _body(status, what, fix, code="invalid_api_key" if status == 401 else None)


def _body(
    status: int, what: str, fix: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    message = f"{what}; {fix}" if fix else what
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
