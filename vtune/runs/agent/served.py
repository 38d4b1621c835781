"""A model without local weights, behind an endpoint or a file of replies, as a run's policy.

It is contacted before the run, then opened; for an endpoint, the results report what it has cost.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from vtune.errors import RecipeError
from vtune.models.pictures import PixelBudget
from vtune.models.policy import load_chat
from vtune.models.served import SCRIPTED, is_scripted, is_served
from vtune.report.progress import say
from vtune.rollout.engine import Request, Sampling
from vtune.rollout.openai import OpenAIEngine, Served, ServedPolicy, address_of
from vtune.rollout.recipe import Rollout
from vtune.rollout.script import read_script
from vtune.rollout.usage import Ledger, spent
from vtune.runs.agent.kinds import Kind
from vtune.schema.message import IMAGE, Message
from vtune.schema.parquet import fingerprint

HELLO = f"{IMAGE}Reply with the digit 1."
"""Our prompt: any reply will do."""
SIDE = 56
"""Side of the picture that goes with it, in pixels."""
LEDGER = "usage.jsonl"
"""The usage file in a run's folder."""


def kind_of(model: str, kind: Kind, *, questions: bool = False) -> Kind:
    """The kind of engine for a model: an endpoint for `openai:URL#model`, a file for `scripted:FILE`, else as
    requested.

    Args:
        model: Name of the model.
        kind: The kind that was asked for.
        questions: Whether the questions are known beforehand, as a file of replies requires.

    Raises:
        RecipeError: If vLLM is to generate for an endpoint or a file, the name is malformed, or a file is
            named where the questions are not known.
    """
    if is_scripted(model):
        if not questions or kind == "vllm":
            raise RecipeError(
                f"{model} is a file of replies to a suite's questions, not a model to generate with",
                fix="give it to `vtune eval`, without --vllm",
            )
        return "scripted"
    if not is_served(model):
        if kind == "openai":
            raise RecipeError(f"{model} is not behind an endpoint", fix="write openai:URL#model")
        return kind
    address_of(model)
    if kind == "vllm":
        raise RecipeError(
            f"{model} is behind an endpoint: vLLM here cannot generate with it",
            fix="leave out --vllm, or give a folder of weights",
        )
    return "openai"


def check_model(model: str, served: Served, rollout: Rollout) -> None:
    """Check that a model can be reached, before anything has to be paid for.

    Raises:
        DataError: If the tokenizer of a folder or hub name, or a file of replies, cannot be loaded.
        ServiceError: If an endpoint does not answer, or takes no pictures.
        RecipeError: If its key is not set.
    """
    if is_scripted(model):
        read_script(model)
        return
    if not is_served(model):
        load_chat(model)
        return
    asyncio.run(_meet(model, served, rollout))


def check_script(model: str, questions: Collection[str], rollouts: int, *, silent: bool) -> None:
    """Check that a file of replies covers all questions; one line reports ids that match no question.

    Args:
        model: `scripted:FILE`.
        questions: Ids of the questions.
        rollouts: Rollouts per question.
        silent: Whether such ids are expected (the suite has more questions), or were already reported.

    Raises:
        DataError: If the file cannot be read, or a rollout has no line.
    """
    script = read_script(model)
    unknown = script.check(questions, rollouts)
    if unknown and not silent:
        say(
            f"{len(unknown)} id(s) in {script.path} match no question and are left out, the first "
            f"{unknown[0]!r}"
        )


async def _meet(model: str, served: Served, rollout: Rollout) -> None:
    # A user who waits for the start should not wait through every retry.
    brief = served.model_copy(update={"retries": min(1, served.retries)})
    policy = ServedPolicy.of(PixelBudget(min_pixels=1, max_pixels=SIDE * SIDE), brief)
    out = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), "grey").save(out, "PNG")
    engine = OpenAIEngine(address_of(model), brief, policy.pictures, max_batch=1)
    request = Request(
        token_ids=(),
        pixels=[policy.pictures.read(out.getvalue())],
        sampling=Sampling(temperature=rollout.temperature, max_new_tokens=rollout.max_new_tokens),
        messages=(Message("user", HELLO, (0,)),),
    )
    async with aclosing(engine):
        await engine.open()
        await engine.generate(request)


@asynccontextmanager
async def served_engine(
    model: str, served: Served, policy: ServedPolicy, rollout: Rollout, out: Path
) -> AsyncIterator[OpenAIEngine]:
    """The engine of a model behind an endpoint; records in `out` what its turns cost.

    Raises:
        RecipeError: If its key is not set.
    """
    with Ledger.at(out / LEDGER) as ledger:
        engine = OpenAIEngine(
            address_of(model), served, policy.pictures, max_batch=rollout.max_batch, ledger=ledger
        )
        async with aclosing(engine):
            await engine.open()
            yield engine


def endpoint_facts(model: str, served: Served, out: Path) -> dict[str, Any]:
    """What results report about an endpoint's model: `url`, `model`, cost of its turns; else nothing."""
    if not is_served(model):
        return {}
    address = address_of(model)
    facts = {"url": address.url, "model": address.model} | spent(out / LEDGER, served.prices)
    return {"endpoint": facts}


def script_facts(model: str) -> dict[str, str]:
    """What identifies a file of replies in an evaluation: `script`, its SHA-256; nothing for other models."""
    return {"script": fingerprint(Path(model.removeprefix(SCRIPTED)))} if is_scripted(model) else {}
