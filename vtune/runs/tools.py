"""The part of a recipe that says which tools beside code run, and how; opened for a run."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from vtune.config import Strict
from vtune.errors import MissingExtra, RecipeError
from vtune.judge.client import JudgeClient, JudgeEndpoint
from vtune.judge.prompts import Prompt
from vtune.rollout.prompts import TELLS, Style
from vtune.schema.sample import Sample
from vtune.tools import image_search, text_search
from vtune.tools import zoom as zooming
from vtune.tools.http import Patience
from vtune.tools.passage import Searcher
from vtune.tools.store import read_manifest
from vtune.tools.tool import Tool
from vtune.tools.toolbox import Toolbox
from vtune.tools.zoom import Zoom, ZoomRecipe

SUMMARISE = """You read search results for somebody who asked for them.

Write down, in at most five sentences, what they say about the query: names, dates, numbers and places as \
they stand there. Use nothing but the results. If they say nothing about the query, write exactly that."""
"""Ours; SenseNova-MARS's code asks for at most five sentences, too."""

NO_SEARCH = "pip install 'vtune[search]'"


class WebSearch(Strict):
    """The Serper API, and what it has answered before."""

    api_key_env: str | None
    """Name of the environment variable that holds the key; null asks nothing: recorded answers only."""
    max_requests: int = Field(ge=0)
    """Questions that one process of a run may ask; the answers are in search-*.jsonl of its folder."""
    recorded: tuple[str, ...]
    """Such files of other runs: what stands there is not asked again."""


class TextSearchRecipe(Strict):
    """Where text is searched: exactly one of `index`, `url` and `web`."""

    index: str | None = None
    """Folder that `vtune data index` wrote: searched in this process."""
    url: str | None = None
    """Of a `vtune serve search`."""
    token_env: str | None = None
    """Name of the environment variable that holds its token; null where it wants none."""
    web: WebSearch | None = None
    top_k: int = Field(gt=0, le=100)
    """Passages of an answer (3 in SenseNova-MARS's training)."""
    max_chars: int = Field(gt=0)
    """Of an answer."""
    patience: Patience | None = None
    """With `url` and `web`: how long an answer is waited for."""
    summariser: JudgeEndpoint | None = None
    """A model that reads the passages and says what they say; null shows them."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(place is not None for place in (self.index, self.url, self.web)) != 1:
            raise ValueError("give exactly one of index, url and web")
        _check_remote(self.url, self.token_env, self.patience, local=self.index is not None)
        return self


class ImageSearchRecipe(Strict):
    """Where pictures are searched: `cached` columns of the samples, an `index`, or a service."""

    cached: bool = False
    """Results stand in the samples (SenseNova-MARS's image_search_title_list, …)."""
    thumbnails: str | None = None
    """With `cached`: folder that their paths start from; null shows titles only."""
    index: str | None = None
    """Folder that `vtune data index --pictures` wrote."""
    url: str | None = None
    """Of a `vtune serve search --pictures`."""
    token_env: str | None = None
    min_score: float | None = Field(default=None, ge=0, le=1)
    """With `index`: what is less alike is not found; null: 0.75 (ours), as a service has it."""
    top_k: int = Field(gt=0, le=100)
    """Matches of an answer (5 in SenseNova-MARS)."""
    max_chars: int = Field(gt=0)
    show: bool | None = None
    """With `index` and `url`: whether the policy sees thumbnails, or reads only what is known about them."""
    patience: Patience | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum((self.cached, self.index is not None, self.url is not None)) != 1:
            raise ValueError("give exactly one of cached, index and url")
        if self.thumbnails is not None and not self.cached:
            raise ValueError("thumbnails belong to cached: an index has its own")
        if (self.show is None) != self.cached:
            raise ValueError("show is for index and url, and needed there; with cached, thumbnails decides")
        if self.min_score is not None and self.index is None:
            raise ValueError("min_score belongs to index")
        _check_remote(self.url, self.token_env, self.patience, local=self.url is None)
        return self


def _check_remote(url: str | None, token_env: str | None, patience: Patience | None, *, local: bool) -> None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is no URL: write http://HOST:PORT")
    if (patience is None) != local:
        raise ValueError("patience is for what is asked over HTTP, and needed there")
    if token_env is not None and url is None:
        raise ValueError("token_env belongs to url")


class ToolsRecipe(Strict):
    """What samples may offer beside `python`; null: not in this run."""

    zoom: ZoomRecipe | None = None
    text_search: TextSearchRecipe | None = None
    image_search: ImageSearchRecipe | None = None


SECTIONS: Mapping[str, str] = {
    zooming.NAME: "zoom",
    text_search.NAME: "text_search",
    image_search.NAME: "image_search",
}
"""Tool -> its section in `tools`."""


def check_tools(samples: Iterable[Sample], recipe: ToolsRecipe | None, prompt: Style) -> None:
    """See, before a run, that every tool that a sample offers can run, and that the policy is told of it.

    Raises:
        RecipeError: If the recipe does not say how it runs, or its `rollout.prompt` says nothing of it.
        DataError: If a sample has no cached results.
    """
    matches: image_search.Matches | None = None
    section = recipe.image_search if recipe is not None else None
    if section is not None and section.cached:
        matches = image_search.Replayed(None if section.thumbnails is None else Path(section.thumbnails))
    for sample in samples:
        for name in sample.tools:
            key = SECTIONS.get(name)
            if key is not None and (recipe is None or getattr(recipe, key) is None):
                raise RecipeError(
                    f"sample {sample.id!r} offers {name}, and the recipe has no tools.{key}",
                    fix=f"write a section tools.{key} (README, `vtune rl`), or let them offer others: "
                    "`vtune data import … --tools`, `tools` of a source (data recipe), `offers` of a suite",
                )
            if name not in TELLS[prompt]:
                raise RecipeError(
                    f"sample {sample.id!r} offers {name}, of which the prompt `{prompt}` says nothing",
                    fix="set rollout.prompt to tools, or let it offer what the prompt is for",
                )
        if image_search.NAME in sample.tools and matches is not None:
            matches.check(sample)


def check_indexes(recipe: ToolsRecipe | None) -> None:
    """See, before a run, that its indexes are there.

    Raises:
        DataError: If one is not.
    """
    if recipe is None:
        return
    if recipe.text_search is not None and recipe.text_search.index is not None:
        read_manifest(Path(recipe.text_search.index), "passages")
    if recipe.image_search is not None and recipe.image_search.index is not None:
        read_manifest(Path(recipe.image_search.index), "pictures")


@asynccontextmanager
async def tools_of(recipe: ToolsRecipe | None, record: Path) -> AsyncIterator[Toolbox]:
    """The tools of a run, open.

    Args:
        recipe: As the run's recipe says; null: no tool but code.
        record: JSONL file for what the web says; one a process.

    Raises:
        RecipeError: If a key or token is not set.
        DataError: If an index is not there or not whole.
        MissingExtra: If the index needs a package that is not installed.
    """
    async with AsyncExitStack() as stack:
        tools: dict[str, Tool] = {}
        if recipe is not None:
            if recipe.zoom is not None:
                tools[zooming.NAME] = Zoom(recipe.zoom)
            if recipe.text_search is not None:
                searcher = await stack.enter_async_context(aclosing(_searcher(recipe.text_search, record)))
                summarise = None
                if recipe.text_search.summariser is not None:
                    client = await stack.enter_async_context(JudgeClient(recipe.text_search.summariser))
                    summarise = _summariser(client)
                tools[text_search.NAME] = text_search.TextSearch(
                    searcher,
                    top_k=recipe.text_search.top_k,
                    max_chars=recipe.text_search.max_chars,
                    summarise=summarise,
                )
            if recipe.image_search is not None:
                section = recipe.image_search
                matches = await stack.enter_async_context(aclosing(_matches(section)))
                tools[image_search.NAME] = image_search.ImageSearch(
                    matches,
                    top_k=section.top_k,
                    max_chars=section.max_chars,
                    show=section.show or section.thumbnails is not None,
                )
        yield Toolbox(tools)


def _searcher(recipe: TextSearchRecipe, record: Path) -> Searcher:
    if recipe.index is not None:
        try:
            from vtune.tools.bm25 import PassageIndex
        except ModuleNotFoundError as error:
            raise MissingExtra(f"{error.name} is not installed", fix=NO_SEARCH) from None
        return PassageIndex(Path(recipe.index))
    assert recipe.patience is not None
    if recipe.url is not None:
        from vtune.tools.remote import RemotePassages

        token = _secret(recipe.token_env, "the search service's token")
        return RemotePassages(recipe.url.rstrip("/"), recipe.patience, token=token)
    from vtune.tools.web import Web

    assert recipe.web is not None
    return Web(
        _secret(recipe.web.api_key_env, "the web search's key"),
        recipe.patience,
        record=record,
        recorded=[Path(name) for name in recipe.web.recorded],
        max_requests=recipe.web.max_requests,
    )


def _matches(recipe: ImageSearchRecipe) -> image_search.Matches:
    if recipe.cached:
        return image_search.Replayed(None if recipe.thumbnails is None else Path(recipe.thumbnails))
    if recipe.index is not None:
        from vtune.tools.picture_index import MIN_SCORE, PictureIndex

        least = MIN_SCORE if recipe.min_score is None else recipe.min_score
        return image_search.Searched(PictureIndex(Path(recipe.index), min_score=least))
    from vtune.tools.remote import RemotePictures

    assert recipe.url is not None
    assert recipe.patience is not None
    token = _secret(recipe.token_env, "the image search service's token")
    return image_search.Searched(RemotePictures(recipe.url.rstrip("/"), recipe.patience, token=token))


def _summariser(client: JudgeClient) -> text_search.Summarise:
    async def summarise(query: str, passages: str) -> str:
        return await client.ask(Prompt(SUMMARISE, f"Query: {query}\n\nResults:\n{passages}"), [])

    return summarise


def _secret(variable: str | None, what: str) -> str | None:
    if variable is None:
        return None
    if variable not in os.environ:
        raise RecipeError(
            f"{what} is not set: no environment variable {variable}", fix=f"export {variable}=…"
        )
    return os.environ[variable]
