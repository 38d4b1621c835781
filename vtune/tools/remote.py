"""Searches through a service (`vtune serve search`)."""

import asyncio
import base64
import io
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from PIL import Image

from vtune.errors import DataError, ServiceError
from vtune.tools.http import Patience, Poster
from vtune.tools.passage import Passage, Searcher, passage_from
from vtune.tools.pictures import Match
from vtune.tools.remote_settings import bearer
from vtune.tools.retrieve import ROUTE, RetrievedPassages

HELLO = "hello"
"""Query sent to a service before a run. Ours: any answer will do."""
SIDE = 56
"""Side in pixels of the picture that is looked up then."""

START = "start it (`vtune serve search`), or fix url and token_env of tools.{}"

Q = TypeVar("Q", contravariant=True)


class RemotePassages:
    """An index of passages that another process serves."""

    def __init__(self, url: str, patience: Patience, *, token: str | None) -> None:
        self._url = url
        self._poster = Poster(
            f"{url}/search", patience, headers=bearer(token), name="the text search service"
        )

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """The results of the service.

        Raises:
            ServiceError: If there is no usable answer in time.
        """
        answer = await self._poster.post({"query": query, "top_k": top_k})
        try:
            return [passage_from(row, "") for row in answer["results"]]
        except (KeyError, TypeError, AttributeError, DataError):
            raise _strange(answer, self._url) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._poster.aclose()


class RemotePictures:
    """An index of pictures that another process serves."""

    def __init__(self, url: str, patience: Patience, *, token: str | None) -> None:
        self._url = url
        self._poster = Poster(
            f"{url}/images", patience, headers=bearer(token), name="the image search service"
        )

    async def search(self, picture: bytes, top_k: int) -> list[Match]:
        """The results of the service.

        Raises:
            ServiceError: If there is no usable answer in time.
        """
        asked = {"picture": base64.b64encode(picture).decode("ascii"), "top_k": top_k}
        answer = await self._poster.post(asked)
        try:
            return [
                Match(
                    title=str(r["title"]),
                    text=str(r["text"]),
                    score=float(r["score"]),
                    thumbnail=None
                    if r["thumbnail"] is None
                    else base64.b64decode(r["thumbnail"], validate=True),
                )
                for r in answer["results"]
            ]
        except (KeyError, TypeError, ValueError):
            raise _strange(answer, self._url) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._poster.aclose()


def remote_passages(url: str, patience: Patience, token: str | None) -> Searcher:
    """The service at a URL, in the protocol that the end of the URL names."""
    url = url.rstrip("/")
    if url.endswith(ROUTE):
        return RetrievedPassages(url, patience, token=token)
    return RemotePassages(url, patience, token=token)


def check_passages_service(url: str, patience: Patience, token: str | None) -> None:
    """Ask a text search service one question in the same way as the run does; any answer will do.

    Raises:
        ServiceError: If there is no answer.
    """
    remedy = f"{START}; the url of a server with Search-R1's protocol ends with {ROUTE}"
    if url.rstrip("/").endswith(ROUTE):
        remedy = "start it, see what it logs, or fix url and token_env of tools.{}"
    service = remote_passages(url, _brief(patience), token)
    asyncio.run(_asked(service, HELLO, remedy.format("text_search")))


def check_pictures_service(url: str, patience: Patience, token: str | None) -> None:
    """The same for an image search service.

    Raises:
        ServiceError: If there is no answer.
    """
    drawn = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), "grey").save(drawn, "PNG")
    service = RemotePictures(url, _brief(patience), token=token)
    asyncio.run(_asked(service, drawn.getvalue(), START.format("image_search")))


class _Service(Protocol[Q]):
    async def search(self, asked: Q, top_k: int, /) -> Any: ...

    async def aclose(self) -> None: ...


async def _asked(service: _Service[Q], asked: Q, remedy: str) -> None:
    async with aclosing(service):
        try:
            await service.search(asked, 1)
        except ServiceError as error:
            raise ServiceError(error.what, where=error.where, fix=remedy) from None


def _brief(patience: Patience) -> Patience:
    # Someone waiting for a run to start should not sit through every retry.
    return patience.model_copy(update={"retries": min(1, patience.retries)})


def _strange(answer: Any, url: str) -> ServiceError:
    return ServiceError(f"not the answer of a search service: {answer!r:.200}", where=url)
