import asyncio
import json
import shutil
from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bench.bench_search import agreement
from tests.tools.corpus import exact_scores, make_corpus, queries, write_corpus
from vtune.errors import DataError, RecipeError
from vtune.runs.data.indexing import index_passages
from vtune.runs.start import locked
from vtune.tools import bm25_build
from vtune.tools.bm25 import PassageIndex
from vtune.tools.bm25_build import build_index
from vtune.tools.passage import Passage
from vtune.tools.words import CUT, PAIRS, STOP_WORDS, bare_words, whole_words, words


def built(folder: Path, *texts: str) -> PassageIndex:
    folder.mkdir()
    passages = [Passage(str(number), "", text) for number, text in enumerate(texts)]
    build_index(passages, folder, lambda: None)
    return PassageIndex(folder)


def test_the_top_passage_matches_exact_bm25(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built in many parts and merged in many word ranges, as for a corpus that exceeds memory."""
    monkeypatch.setattr(bm25_build, "PORTION", 5_000)
    monkeypatch.setattr(bm25_build, "MERGED", 4_000)
    corpus = make_corpus(1_500, seed=3, vocabulary=3_000)
    write_corpus(corpus, tmp_path / "corpus.jsonl")
    facts = index_passages(tmp_path / "corpus.jsonl", tmp_path / "index")
    assert facts["passages"] == 1_500
    index = PassageIndex(tmp_path / "index")
    asked = queries(corpus, 40, seed=4)
    assert agreement(index, corpus, asked) == 1.0
    exact = exact_scores(corpus, asked[0])
    for number, score in index.rank(asked[0], 20):
        assert score == pytest.approx(exact[number], rel=1e-5)
    assert {path.name for path in (tmp_path / "index").iterdir()} == {
        "index.json",
        "passages.bin",
        "passages.ends.npy",
        "data.csc.index.npy",
        "indices.csc.index.npy",
        "indptr.csc.index.npy",
        "vocab.index.json",
        "params.index.json",
    }


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("ab c7é", min_size=1, max_size=20).filter(str.strip), min_size=1, max_size=8))
def test_an_index_scores_like_one_built_by_bm25s(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    index = built(tmp_path_factory.mktemp("index") / "one", *texts)
    tokens = [[word for word in words(text) if word not in STOP_WORDS] for text in texts]
    if not any(tokens):
        assert index.rank("a b c7", 3) == []
        return
    theirs = bm25s.BM25()
    theirs.index(tokens, show_progress=False)
    for word in {word for text in tokens for word in text}:
        scores = np.zeros(len(texts))
        for number, score in index.rank(word, len(texts)):
            scores[number] = score
        assert scores == pytest.approx(theirs.get_scores([word]), rel=1e-5)


def test_equal_passages_keep_their_order_and_unrelated_ones_are_not_ranked(tmp_path: Path) -> None:
    index = built(tmp_path / "index", "a ferry", "the island", "a ferry", "A FERRY!")
    assert [number for number, _ in index.rank("Ferry", 2)] == [0, 2]
    assert [number for number, _ in index.rank("ferry", 9)] == [0, 2, 3]
    assert index.find("volcano the", 3) == []
    assert index.find("island", 3) == [Passage("1", "", "the island")]


def test_numbers_and_words_of_any_script_are_found(tmp_path: Path) -> None:
    index = built(tmp_path / "index", "opened in 1996", "Größe 7", "北京 大学")
    assert [index.rank(query, 1)[0][0] for query in ("1996", "GRÖSSE", "7", "北京")] == [0, 1, 1, 2]


def test_words_are_found_within_scripts_without_spaces(tmp_path: Path) -> None:
    texts = (
        "世界上最高的教堂是乌尔姆大教堂",
        "ウルム大聖堂は高い",
        "เมืองหลวงคือกรุงเทพมหานคร",
        "울름의 대성당은",
        "Ma\u0301laga 山 ９",
    )
    index = built(tmp_path / "index", *texts)
    asked = ("乌尔姆大教堂", "ウルム", "กรุงเทพ", "울름", "MÁLAGA", "山", "9")
    assert [index.rank(query, 1)[0][0] for query in asked] == [0, 1, 2, 3, 4, 4, 4]
    assert words("a Python3は山") == ["a", "python3", "は山"]
    assert index.find("柏林", 1) == []


def test_words_keep_their_vowel_signs_and_accents(tmp_path: Path) -> None:
    texts = ("आगरा का किला", "एक केला पीला होता है", "தமிழ்நாடு", "İSTANBUL", "شهر می\u200cخواهم", "Q\u0303 東京")
    index = built(tmp_path / "index", *texts)
    asked = ("केला", "किला", "தமிழ்நாடு", "İstanbul", "می\u200cخواهم", "q\u0303", "東京")
    assert [[found for found, _ in index.rank(query, 9)] for query in asked] == [
        [1], [0], [2], [3], [4], [5], [5],
    ]  # fmt: skip
    assert words("किला ❤\ufe0f केला,e") == ["किला", "केला", "e"]


def test_an_index_split_at_combining_marks_is_searched_with_the_same_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(bm25_build, "words", bare_words)
        before.setattr(bm25_build, "CUT", PAIRS)
        built(tmp_path / "index", "केला", "東京タワー a")
    index = PassageIndex(tmp_path / "index")
    assert [index.rank(query, 1)[0][0] for query in ("केला", "京タ")] == [0, 1]


def test_an_older_index_is_searched_with_its_own_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(bm25_build, "words", whole_words)
        built(tmp_path / "index", "北京 大学", "ferry ½")
    manifest = tmp_path / "index/index.json"
    facts = json.loads(manifest.read_text())
    assert facts.pop("cut") == CUT
    manifest.write_text(json.dumps(facts))
    index = PassageIndex(tmp_path / "index")
    assert [found for found, _ in index.rank("大学 ferry", 2)] == [0, 1]
    manifest.write_text(json.dumps(facts | {"cut": "syllables"}))
    with pytest.raises(DataError, match="splits words with 'syllables', which is not known here"):
        PassageIndex(tmp_path / "index")


def test_a_lone_surrogate_in_a_corpus_becomes_a_question_mark(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"text": "a ferry \\ud83d", "title": "\\ud83d"}\n')
    index_passages(tmp_path / "corpus.jsonl", tmp_path / "index")
    assert PassageIndex(tmp_path / "index").find("ferry", 1)[0].text == "a ferry ?"


def test_an_index_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "a ferry"}\n{"title": "no text"}\n')
    with pytest.raises(DataError, match="has no text") as caught:
        index_passages(corpus, tmp_path / "index")
    assert caught.value.where == f"{corpus}, row 1"
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]
    corpus.write_text('{"text": "a ferry"}\n')
    index_passages(corpus, tmp_path / "index")
    with pytest.raises(RecipeError, match="already exists"):
        index_passages(corpus, tmp_path / "index")
    corpus.write_text("\n")
    with pytest.raises(DataError, match="no passage"):
        index_passages(corpus, tmp_path / "other")


def test_a_dpr_passage_table_is_a_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "psgs_w100.tsv"
    head = 'id\ttext\ttitle\n1\t"""Sark"" has a ferry"\tSark\n2\tgolf is played\t"""Golf"" (game)"\n'
    corpus.write_text(head)
    index_passages(corpus, tmp_path / "index")
    index = PassageIndex(tmp_path / "index")
    assert asyncio.run(index.search("ferry", 3)) == [Passage("1", "Sark", '"Sark" has a ferry')]
    assert asyncio.run(index.search("golf", 3)) == [Passage("2", '"Golf" (game)', "golf is played")]
    corpus.write_text(f"{head}3\tno title\n")
    with pytest.raises(DataError, match=r"2 value\(s\) for 3 columns") as caught:
        index_passages(corpus, tmp_path / "other")
    assert caught.value.where == f"{corpus}, row 2"


@pytest.mark.parametrize("corpus", ["pages", "pages/one.html"])
def test_unsupported_documents_get_advice_on_conversion(tmp_path: Path, corpus: str) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/one.html").write_text("<p>a ferry</p>")
    with pytest.raises(DataError, match=r"is not a corpus: a \.parquet") as caught:
        index_passages(tmp_path / corpus, tmp_path / "index")
    assert "as JSON lines" in caught.value.fix


def test_a_killed_build_does_not_block_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the next process has the same process id, as in a container."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "a ferry"}\n')

    def killed(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as cut:
        cut.setattr(bm25_build, "build_index", killed)
        cut.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(OSError, match="killed"):
            index_passages(corpus, tmp_path / "index")
    (left,) = (path for path in tmp_path.iterdir() if path != corpus)
    (left / "portions").mkdir()
    (left / "portions" / "half").write_text("a portion")
    with locked(left), pytest.raises(RecipeError, match="another process is working in"):
        index_passages(corpus, tmp_path / "index")
    index_passages(corpus, tmp_path / "index")
    assert not (tmp_path / "index" / "portions").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "index"]


@pytest.mark.parametrize("name", ["index.json", "passages.bin", "passages.ends.npy", "params.index.json"])
def test_an_index_that_lost_a_file_is_refused(tmp_path: Path, name: str) -> None:
    built(tmp_path / "index", "a ferry")
    (tmp_path / "index" / name).unlink()
    with pytest.raises(DataError):
        PassageIndex(tmp_path / "index")


def test_a_truncated_index_is_refused(tmp_path: Path) -> None:
    built(tmp_path / "index", "a ferry")
    path = tmp_path / "index" / "passages.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="cut short"):
        PassageIndex(tmp_path / "index")
