import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vtune.errors import DataError, RecipeError
from vtune.tools import dense_build
from vtune.tools.dense import DenseIndex
from vtune.tools.dense_build import Callbacks, Method, build_dense_index, tidy_dense_index
from vtune.tools.passage import Passage
from vtune.tools.passages import torch_device

WIDTH = 16


class Hashed:
    """A fake encoder: a hash of the text chooses the vector; texts with the same first word are close."""

    width = WIDTH

    def __init__(self, name: str = "hashed", *, fail_after: int | None = None) -> None:
        self.facts = {"model": name, "fingerprint": name.removeprefix("moved/"), "pooling": "mean"}
        self.embedded: list[str] = []
        self._left = fail_after

    def query(self, text: str) -> NDArray[np.float32]:
        vector = _point(text.split()[0]) + 0.5 * _point(text)
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self.query(text) for text in texts])

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._left is not None:
            if self._left == 0:
                raise KeyboardInterrupt
            self._left -= 1
        self.embedded += texts
        return np.stack([self.query(text) for text in texts])


def _point(text: str) -> NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(WIDTH)


def corpus(count: int) -> list[Passage]:
    return [Passage(f"p{n}", "", f"topic{n % 20} fact {n}") for n in range(count)]


def silent() -> Callbacks:
    return Callbacks(lambda: None, lambda text: None)


def build(
    folder: Path, passages: Iterable[Passage], encoder: Hashed | None = None, method: Method | None = None
) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    facts = build_dense_index(passages, folder, encoder or Hashed(), silent(), method=method)
    tidy_dense_index(folder, facts["method"])
    return facts


def brute(passages: Sequence[Passage], query: str, top_k: int) -> list[int]:
    """The best passages by brute force, in the stored precision."""
    encoder = Hashed()
    kept = encoder.passages([one.text for one in passages]).astype(np.float16).astype(np.float64)
    scores = kept @ encoder.query(query).astype(np.float16).astype(np.float64)
    return [int(n) for n in np.argsort(-scores, kind="stable")[:top_k]]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(count=st.integers(1, 60), part=st.integers(1, 20), window=st.integers(5, 25), top_k=st.integers(1, 70))
def test_exact_search_matches_brute_force_however_the_index_is_split(
    tmp_path_factory: pytest.TempPathFactory, count: int, part: int, window: int, top_k: int
) -> None:
    folder, passages = tmp_path_factory.mktemp("index"), corpus(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_build, "PART", part)
        patch.setattr(dense_build, "WINDOW", window)
        build(folder, passages)
    index = DenseIndex(folder, Hashed())
    assert index.passages == count
    for query in ("topic3 fact", "topic7 fact 27"):
        found = index.rank(query, top_k)
        assert [number for number, _ in found] == brute(passages, query, top_k)
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


def test_graphs_find_nearly_everything_that_exact_search_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_build, "PART", 300)
    passages = corpus(800)
    facts = build(tmp_path / "graphs", passages, method="hnsw")
    assert (facts["method"], facts["passages"]) == ("hnsw", 800)
    build(tmp_path / "exact", passages, method="exact")
    graphs, exact = (DenseIndex(tmp_path / name, Hashed()) for name in ("graphs", "exact"))
    first, shared = [], []
    for number in range(0, 800, 20):
        query = passages[number].text
        one, other = ([n for n, _ in index.rank(query, 10)] for index in (graphs, exact))
        assert other[0] == number
        first.append(one[0] == number)
        shared.append(len(set(one) & set(other)) / 10)
    # Several threads add to a graph, so no two graphs are the same, and what one misses is random.
    assert np.mean(first) > 0.9
    assert np.mean(shared) > 0.9
    assert {path.name for path in (tmp_path / "graphs").iterdir()} == {
        "index.json",
        "passages.bin",
        "passages.ends.npy",
        *(f"graph-{n:04d}.usearch" for n in range(3)),
    }
    assert {path.name for path in (tmp_path / "exact").iterdir()} == {
        "index.json",
        "passages.bin",
        "passages.ends.npy",
        "vectors.f16",
    }


@pytest.mark.parametrize("method", ["exact", "hnsw"])
@pytest.mark.parametrize("normalise", [True, False])
def test_unit_vectors_ignore_length_changes_by_half_precision(
    method: Method, normalise: bool, tmp_path: Path
) -> None:
    encoder = Hashed()
    encoder.facts |= {"normalise": normalise}
    folder = tmp_path / "index"
    build(folder, corpus(60), encoder, method)
    index = DenseIndex(folder, encoder)
    own = [index.rank(passage.text, 1)[0][1] for passage in corpus(60)]
    assert own == pytest.approx([1.0] * 60, abs=1e-3)
    assert (own == pytest.approx([1.0] * 60, abs=1e-6)) == normalise


def test_large_indexes_get_graphs_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_build, "EXACT_MOST", 10)
    assert build(tmp_path / "a", corpus(10))["method"] == "exact"
    assert build(tmp_path / "b", corpus(11))["method"] == "hnsw"
    assert build(tmp_path / "c", corpus(11), method="exact")["method"] == "exact"


@pytest.mark.parametrize("method", ["exact", "hnsw"])
def test_an_interrupted_build_resumes_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    """Also if killed between two files: whatever is not in the journal is cut off and written again."""
    monkeypatch.setattr(dense_build, "WINDOW", 10)
    monkeypatch.setattr(dense_build, "PART", 20)
    passages, folder = corpus(45), tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        build(folder, passages, Hashed(fail_after=3), method)
    assert not (folder / "index.json").exists()
    for name in ("passages.bin", "vectors.f16", "ends.i64"):
        with (folder / name).open("ab") as file:
            file.write(b"half a window")
    again = Hashed("moved/hashed")  # the same weights at another path
    again.facts["model"] = "moved/hashed"
    facts = build(folder, passages, again, method)
    assert again.embedded == [one.text for one in passages[30:]]
    whole = tmp_path / "whole"
    build(whole, passages, method=method)
    for path in whole.iterdir():
        if path.suffix != ".usearch" and path.name != "index.json":
            assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    assert facts["passages"] == 45
    index = DenseIndex(folder, Hashed())
    assert [n for n, _ in index.rank(passages[44].text, 5)] == brute(passages, passages[44].text, 5)


def test_a_build_interrupted_before_its_final_move_embeds_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the corpus has grown meanwhile, its last graph is rebuilt."""
    monkeypatch.setattr(dense_build, "PART", 20)
    build_dense_index(corpus(30), tmp_path, Hashed(), silent(), method="hnsw")
    again = Hashed()
    facts = build_dense_index(corpus(35), tmp_path, again, silent(), method="hnsw")
    assert again.embedded == [one.text for one in corpus(35)[30:]]
    tidy_dense_index(tmp_path, facts["method"])
    assert DenseIndex(tmp_path, Hashed()).find("topic14 fact 34", 1) == [corpus(35)[34]]


def interrupted(folder: Path) -> None:
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        build(folder, corpus(45), Hashed(fail_after=2))


@pytest.mark.parametrize("name", ["passages.bin", "vectors.f16", "ends.i64"])
def test_a_build_does_not_resume_with_a_truncated_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As after an incomplete copy."""
    monkeypatch.setattr(dense_build, "WINDOW", 10)
    interrupted(tmp_path / "index")
    file = tmp_path / "index" / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-4])
    with pytest.raises(DataError, match=f"holds {len(whole) - 4} of the .* bytes") as caught:
        build(tmp_path / "index", corpus(45))
    assert caught.value.where == str(file)
    file.write_bytes(whole)
    build(tmp_path / "index", corpus(45))


def test_a_build_is_not_finished_with_another_corpus_or_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_build, "WINDOW", 10)
    interrupted(tmp_path / "index")
    with pytest.raises(RecipeError, match="unfinished index by another encoder") as caught:
        build(tmp_path / "index", corpus(45), Hashed("other"))
    assert "rm -r" in caught.value.fix
    for changed in (corpus(45)[1:], corpus(15)):
        with pytest.raises(DataError, match="not those that this index was begun with"):
            build(tmp_path / "index", changed)
    build(tmp_path / "index", corpus(45))


def test_an_empty_index_is_refused_and_allows_another_encoder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no passage"):
        build(tmp_path, [])
    build(tmp_path, corpus(3), Hashed("other"))


def test_numbers_outside_half_precision_are_refused(tmp_path: Path) -> None:
    class Huge(Hashed):
        def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.full((len(texts), WIDTH), 1e6, dtype=np.float32)

    with pytest.raises(DataError, match="half precision"), np.errstate(over="ignore"):
        build(tmp_path, corpus(3), Huge())


def test_queries_with_another_model_are_refused(tmp_path: Path) -> None:
    build(tmp_path, corpus(3))
    with pytest.raises(DataError, match="hashed embedded its contents, but other is another model"):
        DenseIndex(tmp_path, Hashed("other"))
    assert DenseIndex(tmp_path, Hashed("moved/hashed")).find("topic1 fact 1", 1) == [corpus(3)[1]]


def test_an_encoder_uses_the_gpu_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search threads would use GPU 0 by default."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert torch_device("cuda") == torch.device("cuda", 3)
    assert torch_device("cpu") == torch.device("cpu")


def drop(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("damage", [drop, cut])
@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("exact", "index.json"),
        ("exact", "passages.bin"),
        ("exact", "passages.ends.npy"),
        ("exact", "vectors.f16"),
        ("hnsw", "graph-0001.usearch"),
    ],
)
def test_an_incomplete_index_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method, name: str, damage: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(dense_build, "PART", 20)
    build(tmp_path, corpus(30), method=method)
    damage(tmp_path / name)
    with pytest.raises(DataError):
        DenseIndex(tmp_path, Hashed())
