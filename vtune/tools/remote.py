"""Searches by a service (`vtune serve search`)."""

import base64
from typing import Any

from vtune.errors import DataError, ServiceError
from vtune.tools.http import Patience, Poster
from vtune.tools.passage import Passage, passage_from
from vtune.tools.pictures import Match


class RemotePassages:
    """An index of passages that another process serves."""

    def __init__(self, url: str, patience: Patience, *, token: str | None) -> None:
        self._url = url
        self._poster = Poster(
            f"{url}/search", patience, headers=_bearer(token), name="the text search service"
        )

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """What the service finds.

        Raises:
            ServiceError: If it gives no usable answer in time.
        """
        answer = await self._poster.post({"query": query, "top_k": top_k})
        try:
            return [passage_from(row, "") for row in answer["results"]]
        except (KeyError, TypeError, AttributeError, DataError):
            raise _strange(answer, self._url) from None

    async def aclose(self) -> None:
        """Close its connections."""
        await self._poster.aclose()


class RemotePictures:
    """An index of pictures that another process serves."""

    def __init__(self, url: str, patience: Patience, *, token: str | None) -> None:
        self._url = url
        self._poster = Poster(
            f"{url}/images", patience, headers=_bearer(token), name="the image search service"
        )

    async def search(self, picture: bytes, top_k: int) -> list[Match]:
        """What the service finds.

        Raises:
            ServiceError: If it gives no usable answer in time.
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
        """Close its connections."""
        await self._poster.aclose()


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _strange(answer: Any, url: str) -> ServiceError:
    return ServiceError(f"not the answer of a search service: {str(answer)[:200]!r}", where=url)
