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
        """What the code runs in."""

    @property
    def tools(self) -> ToolsRecipe | None:
        """Tools other than code."""


class FixedWeights(Conversations, Protocol):
    """In addition, the sections that set how fixed weights are loaded."""

    @property
    def images(self) -> PixelBudget:
        """How large pictures are shown."""

    @property
    def dtype(self) -> Dtype:
        """Dtype of the weights."""

    @property
    def threads(self) -> int:
        """Threads that torch may use."""

    @property
    def openai(self) -> Served:
        """How requests to a model behind an endpoint are made."""


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
    """An agent around an engine that is already open, and stays open.

    Args:
        recipe: Says how conversations are generated.
        engine: Generates the turns.
        chat: Converts the policy's turns to tokens.
        pictures: Prepares pictures for the policy.
        record: JSONL file for the answers of the web; one per process.
        announced: Whether to print what protects the machine.
        runs_code: Whether any sample may run code or has an environment; if not, no sandbox is started.
        observation_transform: Turns a tool's picture into what the policy is shown; None: the picture itself.
        waiting: Stopwatch that runs while conversations wait for the sandbox.
        judges: Judges of the reward, for the feedback that a recipe asks for; None: it must ask for none.

    Raises:
        RecipeError: If feedback is asked for without judges, or a key or token of a tool is not set.
        DataError: If an index of a tool is missing or incomplete.
        MissingExtra: If a tool needs a package that is not installed.
    """
    feedback = None
    if recipe.rollout.feedback:
        if judges is None:
            raise RecipeError(
                "looks are not judged here, so the policy cannot be told what they showed",
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
    """Load a model whose weights stay as they are, onto the device that its engine needs."""
    if kind in ("openai", "scripted"):
        return ServedPolicy.of(recipe.images, recipe.openai)
    import torch

    torch.set_num_threads(recipe.threads)
    # With vLLM, only the tokenizer and the picture reader are needed here.
    on_gpu = torch.cuda.is_available() and kind == "transformers"
    device = torch.device("cuda" if on_gpu else "cpu")
    return load_policy(model, budget=recipe.images, dtype=recipe.dtype, device=device)


@asynccontextmanager
async def opened_engine(
    recipe: FixedWeights, policy: Policy | ServedPolicy, model: str, out: Path, *, kind: Kind
) -> AsyncIterator[Engine]:
    """An engine for fixed weights, without sandbox and tools; see `open_fixed`."""
    if kind in ("openai", "scripted"):
        check_tensor_parallel(recipe.rollout.tensor_parallel, None, kind=kind)
    if kind == "scripted":
        yield ScriptEngine(read_script(model))
        return
    if isinstance(policy, ServedPolicy):
        async with served_engine(model, recipe.openai, policy, recipe.rollout, out) as served:
            yield served
        return
    from vtune.runs.agent.engines import evaluation_engine  # imports torch and the model's modules

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
    """An agent with its own engine, for weights that stay as they are.

    Args:
        recipe: Says how conversations are generated.
        policy: What `load_fixed` returned.
        model: Folder or hub name of the model.
        out: Folder for the answers of the web, and for weights in transit.
        kind: The kind of engine.
        runs_code: See `open_agent`.
        observation_transform: See `open_agent`.
        judges: See `open_agent`.

    Raises:
        VtuneError: As `open_agent`, or if vLLM is needed and not installed.
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
