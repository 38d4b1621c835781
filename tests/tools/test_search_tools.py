"""Text and image search as the policy uses them, without a service."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.models.rows import picture
from tests.rollout.build import PHOTO, SAMPLE
from vtune.errors import DataError, ServiceError
from vtune.schema.sample import Sample
from vtune.tools.image_search import NOTHING, ImageSearch, Replayed
from vtune.tools.passage import Passage, passage_from
from vtune.tools.text_search import CUT, Summarise, TextSearch
from vtune.tools.tool import Mistake, Scene

PASSAGES = [Passage("1", "Ferry", "It sails."), Passage("2", "", "x" * 50)]


class Shelf:
    """Finds the same passages for any query."""

    def __init__(self, passages: list[Passage]) -> None:
        self.passages = passages

    async def search(self, query: str, top_k: int) -> list[Passage]:
        return self.passages[:top_k]

    async def aclose(self) -> None:
        return


def scene(sample: Sample = SAMPLE) -> Scene:
    return Scene(sample, (PHOTO,), ())


def found(tool: TextSearch | ImageSearch, where: Scene | None = None, **arguments: Any) -> Any:
    return asyncio.run(tool.run(arguments, where or scene()))


def text_search(
    passages: list[Passage] = PASSAGES, max_chars: int = 40, summarise: Summarise | None = None
) -> TextSearch:
    return TextSearch(Shelf(passages), top_k=2, max_chars=max_chars, summarise=summarise)


def test_an_answer_is_truncated_at_its_limit() -> None:
    seen = found(text_search(), query="ferry")
    assert seen.text == "1. Ferry\nIt sails.\n\n2. " + "x" * 17 + CUT
    assert found(text_search(max_chars=200), query="ferry").text.endswith("x" * 50)


def test_a_summary_replaces_the_search_results() -> None:
    asked = []

    async def summarise(query: str, passages: str) -> str:
        asked.append((query, passages))
        return " A ferry <image> sails. "

    seen = found(text_search(max_chars=200, summarise=summarise), query="  the   ferry ")
    assert seen.text == "A ferry < image> sails."
    assert seen.images == ()
    assert asked == [("the ferry", "1. Ferry\nIt sails.\n\n2. " + "x" * 50)]
    assert "No matching" in found(text_search([], summarise=summarise), query="ferry").text
    assert len(asked) == 1


@pytest.mark.parametrize("arguments", [{}, {"query": " "}, {"query": 7}, {"query": "x" * 1001}, {"q": "x"}])
def test_an_invalid_query_is_the_models_mistake(arguments: Mapping[str, Any]) -> None:
    with pytest.raises(Mistake):
        asyncio.run(text_search().run(arguments, scene()))


def test_published_corpora_are_read_by_their_column_names() -> None:
    assert passage_from({"id": 7, "title": "T", "text": "x", "url": "u"}, "f/0") == Passage("7", "T", "x")
    assert passage_from({"contents": "x"}, "f/0") == Passage("f/0", "", "x")
    for row in ({}, {"text": " "}, {"text": 7}, {"text": "x", "title": 7}):
        with pytest.raises(DataError):
            passage_from(row, "f/0")


TITLES = {"image_search_title_list": ["A ferry", "A harbour"], "image_search_summary": "They sail to Sark."}
PATHS = {"image_search_thumbnail_list": ["a.png", "b.png"]}


def image_search(thumbnails: Path | None, *, show: bool = True, max_chars: int = 500) -> ImageSearch:
    return ImageSearch(Replayed(thumbnails), top_k=5, max_chars=max_chars, show=show)


def test_a_cached_search_is_replayed_with_its_thumbnails(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(picture(40, 30))
    sample = replace(SAMPLE, extra=TITLES | PATHS)
    seen = found(image_search(tmp_path), scene(sample))
    assert seen.text == "1. A ferry\nThey sail to Sark.\n<image>\n2. A harbour\n<image>"
    assert len(seen.images) == 2
    without = found(image_search(None), scene(sample))
    assert (without.text.count("<image>"), without.images) == (0, ())
    hidden = found(image_search(tmp_path, show=False), scene(sample))
    assert (hidden.text.count("<image>"), hidden.images) == (0, ())
    short = found(image_search(tmp_path, max_chars=30), scene(sample))
    assert short.text.count("<image>") == len(short.images) == 1


def test_an_unusable_thumbnail_is_left_out_but_its_title_kept(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(50_000, 1))
    (tmp_path / "b.png").write_bytes(picture(40, 30)[:-30])
    seen = found(image_search(tmp_path), scene(replace(SAMPLE, extra=TITLES | PATHS)))
    assert seen.text == "1. A ferry\nThey sail to Sark.\n2. A harbour"
    assert (seen.status, seen.images) == ("ok", ())


def test_a_cached_search_that_found_nothing_says_so() -> None:
    sample = replace(SAMPLE, extra={"image_search_title_list": []})
    assert found(image_search(None), scene(sample)).text == NOTHING


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({}, "not a cached image search"),
        ({"image_search_title_list": "A ferry"}, "not a list of texts"),
        (TITLES | {"image_search_thumbnail_list": ["a.png"]}, "as many paths"),
        (TITLES | PATHS, "no thumbnail at"),
    ],
)
def test_a_sample_without_stored_results_is_refused_before_a_run_and_our_error_in_one(
    tmp_path: Path, extra: Mapping[str, Any], why: str
) -> None:
    sample = replace(SAMPLE, extra=extra)
    with pytest.raises(DataError, match=why):
        Replayed(tmp_path).check(sample)
    with pytest.raises(ServiceError):
        found(image_search(tmp_path), scene(sample))


def test_an_image_search_takes_no_argument_and_needs_a_picture() -> None:
    with pytest.raises(Mistake, match="no argument"):
        found(image_search(None), query="ferry")
    with pytest.raises(Mistake, match="no picture"):
        asyncio.run(image_search(None).run({}, replace(scene(), images=())))
