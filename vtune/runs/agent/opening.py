"""Opens an agent: an engine with the sandbox and tools of a recipe, all closed together."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Protocol

from vtune.errors import RecipeError
from vtune.models.pictures import PictureReader, PixelBudget
from vtune.models.policy import Dtype, Policy, load_policy
from vtune.report.progress import say
from vtune.reward.evidence import Judges
from vtune.rollout.agent import Agent
from vtune.rollout.engine import Engine
from vtune.rollout.openai import Served, ServedPolicy
from vtune.rollout.recipe import Rollout
from vtune.rollout.script import ScriptEngine, read_script
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.transcript import Speech
from vtune.runs.agent.feedback import feedback_of
from vtune.runs.agent.kinds import Kind, check_tensor_parallel
from vtune.runs.agent.sandbox import sandbox_of, say_tier
from vtune.runs.agent.served import served_engine
from vtune.runs.agent.tools import ToolsRecipe, tools_of
from vtune.sandbox.recipe import SandboxRecipe


class Conversations(Protocol):
    """The sections of a recipe that set how conversations are generated."""

    @property
    def rollout(self) -> Rollout:
        """Prompt, limits and temperature."""

    @property
    def sandbox(self) -> SandboxRecipe:
        """What code runs in."""

    @property
    def tools(self) -> ToolsRecipe | None:
        """What runs beside code."""


class FixedWeights(Conversations, Protocol):
    """The sections that set how fixed weights are loaded, in addition."""

    @property
    def images(self) -> PixelBudget:
        """How large pictures are shown."""

    @property
    def dtype(self) -> Dtype:
        """Of the weights."""

    @property
    def threads(self) -> int:
        """Threads that torch may use."""

    @property
    def openai(self) -> Served:
        """How a model behind an endpoint is asked."""


@asynccontextmanager
async def open_agent(
    recipe: Conversations,
    engine: Engine,
    chat: Speech,
    pictures: PictureReader,
    *,
    record: Path,
    announced: bool,
    runs_code: bool = True,
    observation_transform: Callable[[bytes], bytes] | None = None,
    waiting: Stopwatch | None = None,
    judges: Judges | None = None,
) -> AsyncIterator[Agent]:
    """An agent around an engine that is open already, and stays open.

    Args:
        recipe: Says how conversations are drawn.
        engine: Draws the turns.
        chat: The policy's turns as tokens.
        pictures: The policy's eyes.
        record: JSONL file for what the web says; one per process.
        announced: Whether to print what protects the machine.
        runs_code: Whether a sample may run code or has an environment; else no sandbox is started.
        observation_transform: What the policy is shown of a tool's picture; None: the picture.
        waiting: Runs while conversations wait for the sandbox.
        judges: Of the reward, for the feedback that a recipe asks for; None: it may ask for none.

    Raises:
        RecipeError: If feedback is asked for, and nobody judges; or a key or token of a tool is not set.
        DataError: If an index of a tool is not there or not complete.
        MissingExtra: If a tool needs a package that is not installed.
    """
    feedback = None
    if recipe.rollout.feedback:
        if judges is None:
            raise RecipeError(
                "nobody judges looks here, so the policy cannot be told what they showed",
                where="rollout.feedback",
                fix="set it to false",
            )
        feedback = feedback_of(judges)
    async with (
        sandbox_of(recipe.sandbox, sessions=recipe.rollout.conversations, runs_code=runs_code) as sandbox,
        tools_of(recipe.tools, record) as tools,
    ):
        if announced and runs_code:
            say_tier(sandbox)
        yield Agent(
            engine,
            sandbox,
            chat,
            pictures,
            recipe.rollout,
            observation_transform,
            waiting=waiting,
            tools=tools,
            feedback=feedback,
            warn=say,
        )


def load_fixed(recipe: FixedWeights, model: str, *, kind: Kind) -> Policy | ServedPolicy:
    """A model whose weights stay as they are, where its engine wants it."""
    if kind in ("openai", "scripted"):
        return ServedPolicy.of(recipe.images, recipe.openai)
    import torch

    torch.set_num_threads(recipe.threads)
    # With vLLM, only the tokenizer and the reader of pictures are needed here.
    on_gpu = torch.cuda.is_available() and kind == "transformers"
    device = torch.device("cuda" if on_gpu else "cpu")
    return load_policy(model, budget=recipe.images, dtype=recipe.dtype, device=device)


@asynccontextmanager
async def opened_engine(
    recipe: FixedWeights, policy: Policy | ServedPolicy, model: str, out: Path, *, kind: Kind
) -> AsyncIterator[Engine]:
    """An engine for weights that stay as they are, without sandbox and tools; see `open_fixed`."""
    if kind in ("openai", "scripted"):
        check_tensor_parallel(recipe.rollout.tensor_parallel, None, kind=kind)
    if kind == "scripted":
        yield ScriptEngine(read_script(model))
        return
    if isinstance(policy, ServedPolicy):
        async with served_engine(model, recipe.openai, policy, recipe.rollout, out) as served:
            yield served
        return
    from vtune.runs.agent.engines import evaluation_engine  # with torch and the model's modules

    engine = await evaluation_engine(
        kind,
        recipe.rollout,
        policy,
        model=model,
        dtype=recipe.dtype,
        threads=recipe.threads,
        folder=out / "weights",
    )
    async with aclosing(engine):
        yield engine


@asynccontextmanager
async def open_fixed(
    recipe: FixedWeights,
    policy: Policy | ServedPolicy,
    model: str,
    out: Path,
    *,
    kind: Kind,
    runs_code: bool = True,
    observation_transform: Callable[[bytes], bytes] | None = None,
    judges: Judges | None = None,
) -> AsyncIterator[Agent]:
    """An agent with an engine of its own, for weights that stay as they are.

    Args:
        recipe: Says how conversations are drawn.
        policy: What `load_fixed` returned.
        model: Its folder or hub name.
        out: Folder for what the web says, and for weights on their way.
        kind: What draws.
        runs_code: See `open_agent`.
        observation_transform: See `open_agent`.
        judges: See `open_agent`.

    Raises:
        VtuneError: As `open_agent`, or if vLLM is wanted and not installed.
    """
    async with (
        opened_engine(recipe, policy, model, out, kind=kind) as engine,
        open_agent(
            recipe,
            engine,
            policy.chat,
            policy.pictures,
            record=out / "search.jsonl",
            announced=True,
            runs_code=runs_code,
            observation_transform=observation_transform,
            judges=judges,
        ) as agent,
    ):
        yield agent
