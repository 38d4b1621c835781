"""A dense index from the command to the tool: same tool, same rewards, other passages."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.models.rows import picture
from tests.runs.commands import vtune
from tests.tools.encoders import build_encoder
from tests.tools.test_picture_index import build_clip
from vtune.errors import DataError, MissingExtra, RecipeError
from vtune.runs.agent.tools import ToolsRecipe, check_encoders, check_indexes, tools_of
from vtune.runs.data.indexing import index_pictures
from vtune.runs.serve.search import Encoders, SearchService
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.tools import dense_build, passages
from vtune.tools.bm25 import PassageIndex
from vtune.tools.calls import read_calls
from vtune.tools.dense import DenseIndex
from vtune.tools.passages import IndexEncoder, check_passages, open_passages
from vtune.tools.tool import Scene
from vtune.tools.toolbox import Results

TEXTS = {
    "Sark": "the ferry sails to the island",
    "Golf": "the course has holes",
    "Castle": "a tower of stone",
}
WORDS = sorted(
    {word for text in TEXTS.values() for word in text.split()} | {*TEXTS, "boat", "fortress", "links"}
)
SAME = {"boat": "ferry", "fortress": "tower", "links": "course"}
"""Synonyms that occur in no passage: only an encoder matches them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense")
    rows = [{"id": str(n), "contents": f'"{title}"\n{text}'} for n, (title, text) in enumerate(TEXTS.items())]
    (folder / "wiki.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_encoder(folder / "encoder", WORDS, seed=0, same=SAME)
    given = ("data", "index", folder / "wiki.jsonl", "--json")
    made = vtune(*given, "--out", folder / "dense", "--encoder", folder / "encoder", "--family", "e5")
    assert made.code == 0, made.err
    told = json.loads(made.out)
    assert (told["kind"], told["passages"], told["method"]) == ("dense", 3, "exact")
    assert (told["encoder"]["pooling"], told["encoder"]["query_prefix"]) == ("mean", "query: ")
    assert vtune(*given, "--out", folder / "bm25").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["bm25", "dense", "encoder", "wiki.jsonl"]
    return folder


def recipe(index: Path, **encoder: Any) -> ToolsRecipe:
    section = {"index": str(index), "top_k": 1, "max_chars": 500, **encoder}
    return ToolsRecipe.model_validate({"text_search": section})


def asked(tools: ToolsRecipe, query: str) -> str:
    """The tool's response to a turn of the policy."""

    async def main() -> str:
        turn = json.dumps({"name": "text_search_tool", "arguments": {"query": query}})
        (call,) = read_calls(f"<tool_call>{turn}</tool_call>", ["text_search_tool"])
        sample = Sample(
            id="q/1", source="q", prompt=(Message("user", "Where?"),), ground_truth="x", verifier="exact"
        )
        async with tools_of(tools, Path("unused")) as toolbox:
            seen = await toolbox.run(call, Scene(sample, (), ()), 0, Results())
        return f"{seen.status}: {seen.text}"

    return asyncio.run(main())


def test_the_same_tool_with_a_dense_index_matches_synonyms(folder: Path) -> None:
    dense, bm25 = recipe(folder / "dense"), recipe(folder / "bm25")
    check_indexes(dense)
    for query in ("ferry", "the island"):
        assert asked(dense, query) == asked(bm25, query) == "ok: 1. Sark\nthe ferry sails to the island"
    assert asked(bm25, "boat") == "ok: No matching passages were found."
    assert asked(dense, "boat") == "ok: 1. Sark\nthe ferry sails to the island"
    assert asked(dense, "fortress") == "ok: 1. Castle\na tower of stone"


def test_a_service_searches_either_kind(folder: Path) -> None:
    async def titles(index: Path) -> list[str]:
        service = SearchService(index, None, threads=2)
        found = [await service.search({"query": query, "top_k": 2}) for query in ("links", "golf course")]
        return [answer["results"][0]["title"] if answer["results"] else "" for answer in found]

    assert asyncio.run(titles(folder / "dense")) == ["Golf", "Golf"]
    assert asyncio.run(titles(folder / "bm25")) == ["", "Golf"]


def test_a_service_accepts_the_encoders_path_and_device(folder: Path, tmp_path: Path) -> None:
    clip = build_clip(tmp_path / "clip", seed=0)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(picture(40, 30))
    index_pictures(tmp_path / "photos", tmp_path / "pictures", encoder=str(clip))
    moved = str(clip.rename(tmp_path / "moved"))
    bm25, pictures = folder / "bm25", tmp_path / "pictures"
    with pytest.raises(DataError, match="no model folder"):
        SearchService(bm25, pictures, threads=1)
    for device in (None, "cpu"):
        SearchService(bm25, pictures, threads=1, encoders=Encoders(pictures=moved, device=device))
    encoder = str(folder / "encoder")
    SearchService(folder / "dense", pictures, threads=1, encoders=Encoders(encoder, moved, "cpu"))
    with pytest.raises(RecipeError, match="no index here uses a model"):
        SearchService(bm25, None, threads=1, encoders=Encoders(device="cpu"))
    with pytest.raises(RecipeError, match="is for an index of passages"):
        SearchService(None, pictures, threads=1, encoders=Encoders(moved))
    with pytest.raises(RecipeError, match="are for an index of pictures"):
        SearchService(bm25, None, threads=1, encoders=Encoders(pictures=moved))


def test_many_rollouts_may_search_concurrently(folder: Path) -> None:
    async def main() -> list[str]:
        index = open_passages(folder / "dense", None)
        queries = ["boat", "links", "fortress"] * 8
        found = await asyncio.gather(*(index.search(query, 1) for query in queries))
        await index.aclose()
        return [passages[0].title for passages in found]

    assert asyncio.run(main()) == ["Sark", "Golf", "Castle"] * 8


def test_queries_are_embedded_only_by_the_indexs_model(folder: Path, tmp_path: Path) -> None:
    moved = build_encoder(tmp_path / "moved", WORDS, seed=0, same=SAME)
    told = asked(recipe(folder / "dense", encoder={"model": str(moved), "device": "cpu"}), "boat")
    assert told.startswith("ok: 1. Sark")
    other = build_encoder(tmp_path / "other", WORDS, seed=1)
    with pytest.raises(DataError, match="is another model"):
        open_passages(folder / "dense", IndexEncoder(model=str(other)))


def test_missing_requirements_of_a_dense_index_are_found_before_a_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = recipe(folder / "dense", encoder={"model": str(tmp_path / "gone")})
    with pytest.raises(DataError, match="no model folder"):
        check_indexes(gone)
    other = build_encoder(tmp_path / "other", WORDS, seed=1)
    with pytest.raises(DataError, match="is another model"):
        check_indexes(recipe(folder / "dense", encoder={"model": str(other)}))
    on_gpu = recipe(folder / "dense", encoder={"device": "cuda"})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    check_indexes(on_gpu)  # a plan may be made on a machine without a GPU
    with pytest.raises(RecipeError, match="no CUDA device for the encoder"):
        check_encoders(on_gpu)
    check_encoders(recipe(folder / "dense"))
    with pytest.raises(RecipeError, match="BM25 index, which embeds nothing"):
        check_indexes(recipe(folder / "bm25", encoder={"device": "cpu"}))
    with pytest.raises(ValueError, match="encoder is for index"):
        ToolsRecipe.model_validate(
            {"text_search": {"url": "http://x", "encoder": {}, "top_k": 1, "max_chars": 9, "patience": None}}
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passages.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(MissingExtra, match="usearch"):
            check_passages(folder / "dense", None)
    assert isinstance(open_passages(folder / "bm25", None), PassageIndex)
    assert isinstance(open_passages(folder / "dense", None), DenseIndex)


def test_a_build_that_embedded_nothing_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    words = ("data", "index", tmp_path / "none.jsonl", "--out", tmp_path / "index", "--family", "e5")
    assert vtune(*words, "--encoder", folder / "encoder").code == 2
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_build_continues_when_repeated(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable row also stops a build; once fixed, the build continues after the embedded passages."""
    monkeypatch.setattr(dense_build, "WINDOW", 2)
    rows = (folder / "wiki.jsonl").read_text()
    corpus = tmp_path / "wiki.jsonl"
    corpus.write_text(rows + '{"title": "no text"}\n')
    words = (
        "data",
        "index",
        corpus,
        "--out",
        tmp_path / "index",
        "--encoder",
        folder / "encoder",
        "--family",
        "e5",
    )
    stopped = vtune(*words)
    assert (stopped.code, "a passage has no text" in stopped.err) == (2, True)
    assert not (tmp_path / "index").exists()
    other = vtune(*words[:-1], "contriever")
    assert (other.code, "with other settings" in other.err) == (2, True)
    corpus.write_text(rows)
    ended = vtune(*words)
    assert ended.code == 0, ended.err
    assert "2 passages were embedded before" in ended.err
    assert open_passages(tmp_path / "index", None).find("boat", 1)[0].title == "Sark"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "wiki.jsonl"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--encoder", "m"], "required with --encoder"),
        (["--family", "e5"], "only with --encoder"),
        (["--search", "hnsw"], "only with --encoder"),
        (["--encoder", "m", "--family", "e5", "--pictures"], "not with --pictures"),
        (["--encoder", "/none", "--pictures"], "no model folder"),
        (["--encoder", "/none", "--family", "e5"], "no model folder"),
    ],
)
def test_incompatible_index_options_are_refused(
    folder: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    refused = vtune("data", "index", folder / "wiki.jsonl", "--out", tmp_path / "out", *options)
    assert refused.code == 2
    assert said in " ".join(refused.err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []
