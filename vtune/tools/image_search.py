"""image_search_tool: what is known about pictures that resemble the question's."""

import hashlib
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol, Self

from PIL import Image
from pydantic import Field, model_validator

from vtune.errors import DataError, ServiceError
from vtune.files.reading import read_bytes
from vtune.judge.key import secret
from vtune.schema.pixels import decode_picture
from vtune.schema.sample import Sample
from vtune.sections import Strict
from vtune.tools import TOOLS
from vtune.tools.exchanges import Exchanges
from vtune.tools.http import Patience
from vtune.tools.observation import IMAGE_MARK, Observation, inert
from vtune.tools.passages import IndexEncoder
from vtune.tools.pictures import Match, PictureSearcher
from vtune.tools.remote_settings import check_remote
from vtune.tools.similarity import SAME
from vtune.tools.text_search import CUT
from vtune.tools.tool import Mistake, Scene, Schema, ToolPart, check_names, function, shown
from vtune.tools.web_pages import PictureSearch, WebPictures

NAME = "image_search_tool"

NOTHING = "No matching images were found."

TITLES, THUMBNAILS, SUMMARY = "image_search_title_list", "image_search_thumbnail_list", "image_search_summary"
"""Columns of SenseNova-MARS's files, kept in a sample's `extra`."""


def cached_search(sample: Sample) -> dict[str, Any]:
    """The stored search results of a sample, from when the data was made."""
    return {name: sample.extra[name] for name in (TITLES, THUMBNAILS, SUMMARY) if name in sample.extra}


class ImageSearchRecipe(Strict):
    """Where pictures are searched: `cached` columns of the samples, an `index`, a service, or the web."""

    cached: bool = False
    """Results are stored in the samples (SenseNova-MARS's image_search_title_list, …)."""
    thumbnails: str | None = None
    """With `cached`: folder that their paths are relative to; null shows titles only."""
    index: str | None = None
    """Folder that `vtune data index --pictures` wrote."""
    encoder: IndexEncoder | None = None
    """With an `index` that a model embedded: where that model is now; null: as the index names it, on the
    CPU."""
    url: str | None = None
    """URL of a `vtune serve search --pictures`."""
    token_env: str | None = None
    web: WebPictures | None = None
    """Reverse image search on the web; titles and texts only. Record and budget are those of `tools.web`."""
    min_score: float | None = Field(default=None, ge=0, le=1)
    """With `index`: matches below this similarity are dropped; null: 0.75 (ours), as in the service."""
    top_k: int = Field(gt=0, le=100)
    """Matches per answer (5 in SenseNova-MARS)."""
    max_chars: int = Field(gt=0)
    show: bool | None = None
    """With `index` and `url`: whether the policy sees thumbnails, or reads only what is known about them."""
    patience: Patience | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum((self.cached, *(place is not None for place in (self.index, self.url, self.web)))) != 1:
            raise ValueError("give exactly one of cached, index, url and web")
        if self.thumbnails is not None and not self.cached:
            raise ValueError("thumbnails is for cached: an index has its own")
        if (self.show is None) != (self.cached or self.web is not None):
            raise ValueError("show is for index and url, and needed there; with cached, thumbnails decides")
        if self.min_score is not None and self.index is None:
            raise ValueError("min_score is for index")
        if self.encoder is not None and self.index is None:
            raise ValueError("encoder is for index: a service has its own")
        check_remote(self.url, self.token_env, self.patience, local=self.url is None and self.web is None)
        return self


class Matches(Protocol):
    """A source of matches."""

    async def of(self, scene: Scene, top_k: int) -> list[Match]:
        """At most `top_k` matches for the question's first picture, best first.

        Raises:
            ServiceError: If the search fails.
        """
        ...

    def check(self, sample: Sample) -> None:
        """Check, before a run, that the picture of a sample can be searched for.

        Raises:
            DataError: If not.
        """
        ...

    async def aclose(self) -> None:
        """Close everything that was opened."""
        ...


class Replayed:
    """Results stored in the sample: of a search from when the data was made.

    Args:
        thumbnails: Folder that the paths of thumbnails are relative to, if a sample has them; None shows
            titles only.
    """

    def __init__(self, thumbnails: Path | None) -> None:
        self._folder = thumbnails

    async def of(self, scene: Scene, top_k: int) -> list[Match]:
        """The titles, in order, each with its thumbnail; the summary belongs to the first."""
        try:
            titles, paths = self._columns(scene.sample)
            summary = str(scene.sample.extra.get(SUMMARY) or "")
            pictures: list[bytes | None] = [self._read(path) for path in paths[:top_k]]
        except DataError as error:
            raise ServiceError(error.what, where=error.where, fix=error.fix) from None
        return [
            Match(title=title, text=summary if number == 0 else "", score=1.0, thumbnail=picture)
            for number, (title, picture) in enumerate(zip_longest(titles[:top_k], pictures))
        ]

    def check(self, sample: Sample) -> None:
        """Check that it has the columns, and that its thumbnails exist."""
        _, paths = self._columns(sample)
        for path in paths:
            if self._folder is not None and not (self._folder / path).is_file():
                raise DataError(
                    f"no thumbnail at {self._folder / path}",
                    where=f"sample {sample.id!r}, extra_info.{THUMBNAILS}",
                    fix="fix tools.image_search.thumbnails, or set it to null to show titles only",
                )

    def _columns(self, sample: Sample) -> tuple[list[str], list[str]]:
        where = f"sample {sample.id!r}, extra_info"
        titles = sample.extra.get(TITLES)
        paths = sample.extra.get(THUMBNAILS) if self._folder is not None else None
        if not isinstance(titles, list) or not all(isinstance(title, str) for title in titles):
            raise DataError(
                f"not a cached image search: {TITLES} is not a list of texts",
                where=where,
                fix="import data that has it, take image_search_tool out of `tools`, or search an index",
            )
        if paths is None:
            return titles, []
        if (
            not isinstance(paths, list)
            or len(paths) != len(titles)
            or not all(isinstance(p, str) for p in paths)
        ):
            raise DataError(
                f"{THUMBNAILS} is not a list of as many paths as {TITLES} has titles",
                where=where,
                fix="fix the row, or set tools.image_search.thumbnails to null",
            )
        return titles, paths

    def _read(self, path: str) -> bytes:
        assert self._folder is not None
        try:
            return read_bytes(self._folder / path)
        except OSError as error:
            raise DataError(f"a thumbnail cannot be read: {error}") from None

    async def aclose(self) -> None:
        """Nothing to close."""


class Searched:
    """Results from a picture index, here or in a service."""

    def __init__(self, searcher: PictureSearcher) -> None:
        self._searcher = searcher

    async def of(self, scene: Scene, top_k: int) -> list[Match]:
        """The matches in the index."""
        return await self._searcher.search(scene.images[0], top_k)

    def check(self, sample: Sample) -> None:
        """Check that it has a picture."""
        if not sample.images:
            raise DataError(
                "image_search_tool is offered, but there is no picture",
                where=f"sample {sample.id!r}",
                fix="take it out of `tools`",
            )

    async def aclose(self) -> None:
        """Close the index."""
        await self._searcher.aclose()


class ImageSearch:
    """Looks up the question's first picture; there are no options to choose.

    Args:
        matches: Where matches come from.
        top_k: Limit on the matches shown.
        max_chars: Limit on the text of an answer; the rest is cut off.
        show: Whether to show thumbnails.
    """

    def __init__(self, matches: Matches, *, top_k: int, max_chars: int, show: bool) -> None:
        self.matches = matches
        self._top_k = top_k
        self._max_chars = max_chars
        self._show = show

    @property
    def schema(self) -> Schema:
        """The name is from SenseNova-MARS; there is no argument."""
        return function(
            NAME,
            "Look up the question's picture: what is known about pictures that look like it.",
            {},
            [],
        )

    def key(self, arguments: Mapping[str, Any], scene: Scene) -> str:
        """The picture is all that matters."""
        check_names(arguments, self.schema)
        if not scene.images:
            raise Mistake("the question has no picture")
        return hashlib.sha256(scene.images[0]).hexdigest()

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Observation:
        """Search for the picture."""
        self.key(arguments, scene)
        found = await self.matches.of(scene, self._top_k)
        sources = [inert(match.source) for match in found if match.source]
        return shown(*self._rendered(found), sources=sources) if found else shown(NOTHING)

    def _rendered(self, found: Sequence[Match]) -> tuple[str, list[bytes]]:
        """The answer's text with its image marks, and the pictures for the marks."""
        lines, pictures, room = [], [], self._max_chars
        for number, match in enumerate(found, start=1):
            text = inert(f"{number}. {match.title}" + (f"\n{match.text}" if match.text else ""))
            if len(text) > room:
                lines.append(text[:room].rstrip() + CUT)
                break
            room -= len(text)
            thumbnail = _readable(match.thumbnail) if self._show else None
            lines.append(text if thumbnail is None else f"{text}\n{IMAGE_MARK}")
            if thumbnail is not None:
                pictures.append(thumbnail)
        return "\n".join(lines), pictures


def _readable(thumbnail: bytes | None) -> bytes | None:
    """A thumbnail if it can be shown; one that is damaged is dropped, but its title stays."""
    try:
        if thumbnail is not None:
            decode_picture(thumbnail)
    except DataError:
        return None
    return thumbnail


def _matches(recipe: ImageSearchRecipe) -> Matches:
    if recipe.cached:
        return Replayed(None if recipe.thumbnails is None else Path(recipe.thumbnails))
    if recipe.index is not None:
        from vtune.tools.picture_index import MIN_SCORE, PictureIndex

        least = MIN_SCORE if recipe.min_score is None else recipe.min_score
        return Searched(PictureIndex(Path(recipe.index), min_score=least, encoder=recipe.encoder))
    from vtune.tools.remote import RemotePictures

    assert recipe.url is not None
    assert recipe.patience is not None
    token = secret(recipe.token_env, "the image search service's token")
    return Searched(RemotePictures(recipe.url.rstrip("/"), recipe.patience, token=token))


@asynccontextmanager
async def _opened(section: ImageSearchRecipe, record: Path) -> AsyncIterator[ImageSearch]:
    async with aclosing(_matches(section)) as matches:
        yield ImageSearch(
            matches,
            top_k=section.top_k,
            max_chars=section.max_chars,
            show=section.show or section.thumbnails is not None,
        )


@asynccontextmanager
async def _on_web(section: ImageSearchRecipe, exchanges: Exchanges, _: Path) -> AsyncIterator[ImageSearch]:
    assert section.web is not None
    assert section.patience is not None
    async with aclosing(Searched(PictureSearch(section.web, section.patience, exchanges))) as matches:
        yield ImageSearch(matches, top_k=section.top_k, max_chars=section.max_chars, show=False)


def _check(section: ImageSearchRecipe) -> None:
    if section.index is not None:
        from vtune.tools.picture_index import check_pictures

        check_pictures(Path(section.index), section.encoder)


def _check_asking(section: ImageSearchRecipe) -> None:
    token = secret(section.token_env, "the image search service's token")
    if section.url is not None:
        from vtune.tools.remote import check_pictures_service

        assert section.patience is not None
        check_pictures_service(section.url.rstrip("/"), section.patience, token)
    if section.web is not None:
        secret(section.web.api_key_env, "the key of the reverse image search")


def _check_sample(section: ImageSearchRecipe, sample: Sample) -> None:
    if section.cached:
        _matches(section).check(sample)


def _indexed(folder: Path) -> dict[str, Any]:
    """An index of one picture, which is found by every search."""
    from vtune.tools.picture_index import Entry, build_picture_index

    drawn = io.BytesIO()
    Image.radial_gradient("L").resize((64, 64)).save(drawn, "PNG")
    (folder / "pictures").mkdir()
    entry = Entry(drawn.getvalue(), "The moon", "Seen in May.", "the example")
    build_picture_index([entry], folder / "pictures", lambda: None)
    limits = {"top_k": 1, "max_chars": 200, "min_score": 0.0}
    return {"index": str(folder / "pictures"), "show": True, **limits}


TOOLS.add(
    NAME,
    ToolPart(
        "Find pictures that look like the question's, and what is known about them.",
        opened=_opened,
        on_web=_on_web,
        asks_web=lambda section, _: section.web is not None,
        section="image_search",
        recipe=ImageSearchRecipe,
        check=_check,
        check_asking=_check_asking,
        check_sample=_check_sample,
        example={},
        settings=_indexed,
        nothing=NOTHING,
        credit=SAME,
    ),
)
