"""The recipe section for tools other than code: which ones run, and how they are opened."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from vtune.environments import check_environment
from vtune.errors import DataError, RecipeError
from vtune.files.writing import check_file_output
from vtune.rollout.prompts import STYLES, Style
from vtune.schema.sample import Sample
from vtune.sections import Open, Strict
from vtune.tools import TOOLS
from vtune.tools.exchanges import Exchanges, WebRules, check_record
from vtune.tools.image_search import ImageSearchRecipe
from vtune.tools.passages import IndexEncoder, torch_device
from vtune.tools.text_search import TextSearchRecipe
from vtune.tools.tool import Tool, ToolPart
from vtune.tools.toolbox import Toolbox, opening
from vtune.tools.web_pages import check_extractor
from vtune.tools.zoom import ZoomRecipe
from vtune.waits import waiting

OPENING = 30.0
"""Seconds that a tool may take to open or to close before it is reported; ours."""


class NoSettings(Strict):
    """The section of a tool that has no settings: `{}`."""


class ToolsRecipe(Open):
    """The tools that samples may offer besides `python`; null: not in this run.

    A tool from a file under `uses`, or any other that has no key here, has a section under its own name.
    """

    zoom: ZoomRecipe | None = None
    text_search: TextSearchRecipe | None = None
    image_search: ImageSearchRecipe | None = None
    web: WebRules = WebRules()
    """Record, budget and blocked hosts for tools that search the web."""

    @classmethod
    def sections(cls) -> Mapping[str, type[Strict]]:
        """Tool name -> its section, for tools that are opened and have no key here."""
        return {
            name: tool.recipe or NoSettings
            for name, tool in TOOLS.items()
            if tool.opened is not None and tool.section not in cls.model_fields
        }

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        if taken := set(self.sections()) & set(type(self).model_fields):
            raise ValueError(f"`{min(taken)}` is one of vtune's own sections: give your tool another name")
        return self


def sections_of(recipe: ToolsRecipe | None) -> Iterator[tuple[str, ToolPart, Any]]:
    """(name, tool, its section) for every tool that a recipe uses."""
    for name, tool in TOOLS.items():
        section = _section(recipe, name)
        if section is not None:
            yield name, tool, section


def _section(recipe: ToolsRecipe | None, name: str) -> Any:
    """A recipe's section for a tool; None if it has none, or the tool takes none."""
    tool = TOOLS[name]
    if recipe is None or tool.opened is None:
        return None
    if tool.section in ToolsRecipe.model_fields:
        return getattr(recipe, tool.section)
    return recipe.given.get(name)


def check_tools(samples: Iterable[Sample], recipe: ToolsRecipe | None, prompt: Style) -> None:
    """Check, before a run, that every tool that a sample offers can run and that the prompt tells the policy
    about it, and that the sample's environment exists.

    Raises:
        RecipeError: If the recipe does not configure a tool, or its `rollout.prompt` does not mention it.
        DataError: If a sample lacks what a tool needs, e.g. cached results, or its environment does not exist
            or does not provide what its verifier needs.
    """
    run = {name: (tool, section) for name, tool, section in sections_of(recipe)}
    for sample in samples:
        check_environment(sample)
        for name in sample.tools:
            if name not in TOOLS:
                raise RecipeError(
                    f"sample {sample.id!r} offers {name!r}, but there is no such tool",
                    fix=TOOLS.meant(name),
                )
            if TOOLS[name].opened is not None and name not in run:
                key = TOOLS[name].section or name
                raise RecipeError(
                    f"sample {sample.id!r} offers {name}, but no section tools.{key} says how to run it",
                    fix="add that section (for a suite, to its agent; see vtune/tools/README.md), or "
                    "change what the samples offer: `vtune data import … --tools`, `tools` of a "
                    "source (data recipe), `offers` of a suite",
                )
            if not STYLES[prompt].tells_of(name):
                raise RecipeError(
                    f"sample {sample.id!r} offers {name}, which the prompt `{prompt}` does not describe",
                    fix="set rollout.prompt to tools, or let the sample offer what the prompt is for",
                )
        for name in sample.tools:
            if name in run and (check := run[name][0].check_sample) is not None:
                check(run[name][1], sample)


def check_indexes(recipe: ToolsRecipe | None) -> None:
    """Check, before a run, that what its tools need exists, e.g. their indexes.

    Raises:
        DataError: If something is missing.
        RecipeError: If a record of the web is asked for but no tool uses the web, or it cannot be written.
        MissingExtra: If pages are to be read, and the package that extracts their text is not installed.
    """
    for name, tool, section in sections_of(recipe):
        if tool.check is None:
            continue
        try:
            tool.check(section)
        except DataError as error:
            key = tool.section or name
            raise DataError(error.what, where=error.where or f"tools.{key}", fix=error.fix) from error
    if recipe is not None:
        _check_web(recipe)


def check_encoders(recipe: ToolsRecipe | None) -> None:
    """Check, before a run, that the devices that embed its queries here exist.

    Raises:
        RecipeError: If one does not.
    """
    for _, _, section in sections_of(recipe):
        if isinstance(encoder := getattr(section, "encoder", None), IndexEncoder):
            torch_device(encoder.device)


def check_asking(recipe: ToolsRecipe | None) -> None:
    """Check, before a run, that its tools have their keys and tokens, or the records to replay.

    A search service is sent one query, as the judge is; nothing that costs money is tried.

    Raises:
        RecipeError: If a key or token is not set.
        DataError: If a record cannot be opened.
        ServiceError: If a search service does not answer.
    """
    if recipe is None:
        return
    for path in recipe.web.replay:
        check_record(Path(path))
    for _, tool, section in sections_of(recipe):
        replayed = recipe.web.replay and tool.asks_web(section, recipe.web)
        if tool.check_asking is not None and not replayed:
            tool.check_asking(section)


def check_writers(recipe: ToolsRecipe | None, *, world: int) -> None:
    """Check, before a run with `world` processes, that at most one writes the web record that it names.

    Raises:
        RecipeError: If several would.
    """
    if recipe is not None and recipe.web.record is not None and world > 1:
        raise RecipeError(
            f"{world} processes would write to the same record of the web, {recipe.web.record}",
            fix="set tools.web.record to null: each writes its own in the run folder",
        )


def _check_web(recipe: ToolsRecipe) -> None:
    """Check that a record has something to keep and can be written, and that pages can be read."""
    if not asks_web(recipe) and recipe.web.asked_for:
        raise RecipeError(
            "no tool of this run asks the web through `pages` or `web`: there is nothing to record or to "
            "replay",
            fix="name an agent that does, e.g. --agent search-web, or leave --record and --replay out",
        )
    if recipe.web.record is not None:
        check_file_output(Path(recipe.web.record), option="--record")
    pages = None if recipe.text_search is None else recipe.text_search.pages
    if pages is not None and pages.read and not recipe.web.replay:
        check_extractor()


@asynccontextmanager
async def tools_of(recipe: ToolsRecipe | None, record: Path) -> AsyncIterator[Toolbox]:
    """The tools of a run, opened.

    Args:
        recipe: The section of the run's recipe; null: no tool but code.
        record: JSONL file for the answers of the web; one per process.

    Raises:
        RecipeError: If a key or token is not set.
        DataError: If an index is missing or incomplete.
        MissingExtra: If the index needs a package that is not installed.
    """
    async with AsyncExitStack() as stack:
        exchanges = None
        if recipe is not None and asks_web(recipe):
            kept = record.with_name(f"{record.stem}-web.jsonl")
            exchanges = await stack.enter_async_context(aclosing(Exchanges(kept, recipe.web)))
        tools: dict[str, Tool] = {}
        for name, tool, section in sections_of(recipe):
            assert tool.opened is not None
            if exchanges is not None and tool.on_web is not None and tool.asks_web(section, exchanges.rules):
                manager = tool.on_web(section, exchanges, record)
            else:
                manager = tool.opened(section, record)
            tools[name] = await stack.enter_async_context(_opened(name, opening(name, manager)))
        yield Toolbox(tools)


@asynccontextmanager
async def _opened(name: str, manager: AbstractAsyncContextManager[Tool]) -> AsyncIterator[Tool]:
    """A tool that is reported if it takes long to open or to close: nothing of the run happens meanwhile."""
    part, within = (TOOLS.kind, name), getattr(manager, "gen", None)
    async with AsyncExitStack() as stack:
        with waiting(part, within, OPENING):
            tool = await stack.enter_async_context(manager)
        try:
            yield tool
        finally:
            with waiting(part, within, OPENING):
                await stack.aclose()


def asks_web(recipe: ToolsRecipe | None) -> bool:
    """Whether a tool of a recipe searches the web through its record."""
    return recipe is not None and any(
        tool.asks_web(section, recipe.web) for _, tool, section in sections_of(recipe)
    )
