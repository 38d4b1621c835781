"""The part of a recipe that says which tools beside code run, and how; opened for a run."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from vtune.config import Strict
from vtune.environments import check_environment
from vtune.errors import RecipeError, nearest
from vtune.parts import OURS
from vtune.rollout.prompts import STYLES, Style
from vtune.schema.sample import Sample
from vtune.sections import Open
from vtune.tools import TOOLS
from vtune.tools.image_search import ImageSearchRecipe
from vtune.tools.text_search import TextSearchRecipe
from vtune.tools.tool import Tool, ToolPart
from vtune.tools.toolbox import Toolbox
from vtune.tools.zoom import ZoomRecipe


class NoSettings(Strict):
    """The section of a tool that has no settings: `{}`."""


class ToolsRecipe(Open):
    """What samples may offer beside `python`; null: not in this run.

    A tool that a file under `uses` brings has a section under its own name.
    """

    zoom: ZoomRecipe | None = None
    text_search: TextSearchRecipe | None = None
    image_search: ImageSearchRecipe | None = None

    @classmethod
    def sections(cls) -> Mapping[str, type[Strict]]:
        """Name of a tool that a file under `uses` brings -> its section."""
        return {name: TOOLS[name].recipe or NoSettings for name in TOOLS if name not in OURS["tool"]}

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        if taken := set(self.sections()) & set(type(self).model_fields):
            raise ValueError(f"`{min(taken)}` is a section of vtune's own: give your tool another name")
        return self


def sections_of(recipe: ToolsRecipe | None) -> Iterator[tuple[str, ToolPart, Any]]:
    """(name, tool, its section) of every tool that a recipe has run."""
    for name, tool in TOOLS.items():
        section = _section(recipe, name)
        if section is not None:
            yield name, tool, section


def _section(recipe: ToolsRecipe | None, name: str) -> Any:
    """What a recipe says of a tool; None where it says nothing, or the tool has no section."""
    tool = TOOLS[name]
    if recipe is None or tool.opened is None:
        return None
    if name in OURS["tool"]:
        return getattr(recipe, tool.section)
    return recipe.given.get(name)


def check_tools(samples: Iterable[Sample], recipe: ToolsRecipe | None, prompt: Style) -> None:
    """See, before a run, that every tool that a sample offers can run, and that the policy is told of it; and
    that its environment exists.

    Raises:
        RecipeError: If the recipe does not say how it runs, or its `rollout.prompt` says nothing of it.
        DataError: If a sample lacks what a tool needs, e.g. cached results, or names no environment that
            exists and gives what its verifier takes.
    """
    run = {name: (tool, section) for name, tool, section in sections_of(recipe)}
    for sample in samples:
        check_environment(sample)
        for name in sample.tools:
            if name not in TOOLS:
                raise RecipeError(
                    f"sample {sample.id!r} offers {name!r}, and there is no such tool",
                    fix=f"{nearest(name, TOOLS)}; one of your own comes from a file under `uses`",
                )
            if TOOLS[name].opened is not None and name not in run:
                key = TOOLS[name].section or name
                raise RecipeError(
                    f"sample {sample.id!r} offers {name}, and the recipe has no tools.{key}",
                    fix=f"write a section tools.{key} (vtune/tools/README.md), or let them offer others: "
                    "`vtune data import … --tools`, `tools` of a source (data recipe), `offers` of a suite",
                )
            if not STYLES[prompt].tells_of(name):
                raise RecipeError(
                    f"sample {sample.id!r} offers {name}, of which the prompt `{prompt}` says nothing",
                    fix="set rollout.prompt to tools, or let it offer what the prompt is for",
                )
        for name in sample.tools:
            if name in run and (check := run[name][0].check_sample) is not None:
                check(run[name][1], sample)


def check_indexes(recipe: ToolsRecipe | None) -> None:
    """See, before a run, that what its tools need is there, e.g. their indexes.

    Raises:
        DataError: If something is not.
    """
    for _, tool, section in sections_of(recipe):
        if tool.check is not None:
            tool.check(section)


@asynccontextmanager
async def tools_of(recipe: ToolsRecipe | None, record: Path) -> AsyncIterator[Toolbox]:
    """The tools of a run, open.

    Args:
        recipe: As the run's recipe says; null: no tool but code.
        record: JSONL file for what the web says; one per process.

    Raises:
        RecipeError: If a key or token is not set.
        DataError: If an index is not there or not complete.
        MissingExtra: If the index needs a package that is not installed.
    """
    async with AsyncExitStack() as stack:
        tools: dict[str, Tool] = {}
        for name, tool, section in sections_of(recipe):
            assert tool.opened is not None
            tools[name] = await stack.enter_async_context(tool.opened(section, record))
        yield Toolbox(tools)
