"""`vtune data search`: the same finds as the tools have, with scores; bad queries are refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.models.rows import picture
from tests.runs.commands import vtune
from tests.tools.encoders import build_encoder

TEXTS = {"Sark": "the ferry sails to the island", "Golf": "the course has holes"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Indexes of each kind."""
    folder = tmp_path_factory.mktemp("searching")
    rows = [{"id": title.lower(), "title": title, "text": text} for title, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = sorted({word for text in TEXTS.values() for word in text.split()} | {*TEXTS, "boat"})
    build_encoder(folder / "encoder", words, seed=0, same={"boat": "ferry"})
    (folder / "photos").mkdir()
    for number in range(3):
        (folder / "photos" / f"{number}.png").write_bytes(picture(64, 48, seed=number))
    index = ("data", "index", folder / "corpus.jsonl", "--out")
    dense = ("--encoder", folder / "encoder", "--family", "e5")
    assert vtune(*index, folder / "bm25").code == 0
    assert vtune(*index, folder / "dense", *dense).code == 0
    assert vtune("data", "index", "--pictures", folder / "photos", "--out", folder / "pictures").code == 0
    return folder


def found(folder: Path, kind: str, *words: Any) -> list[dict[str, Any]]:
    done = vtune("data", "search", folder / kind, *words, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["kind"] == {"bm25": "passages"}.get(kind, kind)
    return list(told["results"])


def test_bm25_finds_what_shares_a_word_and_nothing_else(folder: Path) -> None:
    ferry, boat = found(folder, "bm25", "ferry holes", "boat")
    assert ferry["query"] == "ferry holes"
    assert {row["id"] for row in ferry["found"]} == {"sark", "golf"}
    assert [row["score"] for row in ferry["found"]] == sorted(row["score"] for row in ferry["found"])[::-1]
    assert boat == {"query": "boat", "found": []}


def test_a_dense_index_ranks_all_by_cosine(folder: Path) -> None:
    (boat,) = found(folder, "dense", "boat", "--top-k", 2)
    assert [row["title"] for row in boat["found"]] == ["Sark", "Golf"]
    first, second = (row["score"] for row in boat["found"])
    assert 1.001 >= first > second


def test_pictures_are_shown_below_the_score_at_which_the_tool_stops(folder: Path) -> None:
    (same,) = found(folder, "pictures", folder / "photos" / "1.png")
    assert (same["found"][0]["title"], same["found"][0]["score"]) == ("1", 1.0)
    assert sorted(row["id"] for row in same["found"]) == ["0", "1", "2"]
    assert same["found"][0]["id"] == "1"
    assert len(same["found"]) == 3
    assert same["found"][-1]["score"] < 0.75


def test_the_remedy_for_a_moved_encoder_names_index_and_options(folder: Path, tmp_path: Path) -> None:
    build_encoder(tmp_path / "encoder", ["ferry"], seed=0)
    index = ("data", "index", folder / "corpus.jsonl", "--out", tmp_path / "dense")
    assert vtune(*index, "--encoder", tmp_path / "encoder", "--family", "e5").code == 0
    (tmp_path / "encoder").rename(tmp_path / "moved")
    done = vtune("data", "search", tmp_path / "dense", "ferry")
    assert done.code == 2
    for named in (
        str(tmp_path / "encoder"),
        str(tmp_path / "dense"),
        "--encoder DIR",
        "tools.text_search.encoder",
    ):
        assert named in done.err
    assert vtune("data", "search", tmp_path / "dense", "ferry", "--encoder", tmp_path / "moved").code == 0


def test_a_person_reads_a_table(folder: Path) -> None:
    long = "ferry " * 40
    done = vtune("data", "search", folder / "bm25", long.strip(), "boat")
    assert done.code == 0
    assert done.out.splitlines()[0].startswith("ferry ferry ferry ferry ferry ferry ferry")
    assert "the ferry sails to the island" in done.out
    assert "boat: nothing found" in done.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("bm25", " "), "query 1 is empty"),
        (("bm25", "ferry", "x" * 1001), "query 2 is longer than the tool allows"),
        (("bm25", "ferry", "--encoder", "elsewhere"), "is a BM25 index, which embeds nothing"),
        (("bm25", "ferry", "--device", "cuda"), "leave --device out"),
        (("pictures", "0.png", "--device", "cuda"), "leave --device out"),
        (("pictures", "nowhere.png"), "no picture can be read"),
        (("pictures", "corpus.jsonl"), "it is not a picture"),
        (("photos", "ferry"), "no index in"),
    ],
)
def test_what_cannot_be_searched_is_named(folder: Path, words: tuple[str, ...], why: str) -> None:
    index, *rest = words
    queries = [str(folder / word) if word == "corpus.jsonl" else word for word in rest]
    done = vtune("data", "search", folder / index, *queries)
    assert done.code == 2
    assert why in done.err
