"""A run resumes if its data and starting weights have moved, but not with different ones."""

import json
from pathlib import Path

import pytest
import yaml

from vtune.errors import DataError, RecipeError
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.evaluate.identity import differing
from vtune.runs.folder import start_run
from vtune.runs.moved import BLOCK, BLOCKS, by_content, index_print, index_prints, weights_print
from vtune.sections import Strict
from vtune.tools.bm25_build import build_index
from vtune.tools.passage import Passage
from vtune.tools.store import read_manifest, write_manifest


class Plan(Strict):
    model: str
    data: tuple[str, ...]
    seed: int = 0


def weights(folder: Path, content: bytes = b"w") -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    return str(folder)


def go(out: Path, model: str, *data: Path, resume: bool = True, seed: int = 0) -> None:
    start_run(out, Plan(model=model, data=tuple(map(str, data)), seed=seed), data, resume=resume)


@pytest.fixture
def began(tmp_path: Path) -> Path:
    """A run with two data files, whose inputs have all been moved."""
    files = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    for file in files:
        file.write_text(file.name)
    go(tmp_path / "run", weights(tmp_path / "start"), *files, resume=False)
    (tmp_path / "there").mkdir()
    for path in (*files, tmp_path / "start"):
        path.rename(tmp_path / "there" / path.name)
    return tmp_path


def test_data_and_weights_may_move_and_the_run_records_where(began: Path) -> None:
    there, run = began / "there", began / "run"
    data = (there / "a.parquet", there / "b.parquet")
    before = json.loads((run / "environment.json").read_text())
    go(run, str(there / "start"), *data)
    found = json.loads((run / "environment.json").read_text())
    assert found == before | {"data": dict(zip(map(str, data), before["data"].values(), strict=True))}
    assert yaml.safe_load((run / "recipe.yaml").read_text())["model"] == str(there / "start")
    go(run, str(there / "start"), *data)
    with pytest.raises(RecipeError, match=r"it differs in seed( \(.*\))?\n"):
        go(run, str(there / "start"), *data, seed=1)


@pytest.mark.parametrize("names", [("b", "a"), ("a",), ("a", "b", "b")])
def test_other_files_and_another_order_are_refused(began: Path, names: tuple[str, ...]) -> None:
    data = [began / "there" / f"{name}.parquet" for name in names]
    if len(names) == 3:
        data[2].with_name("c.parquet").write_text("more")
        data[2] = data[2].with_name("c.parquet")
    with pytest.raises(RecipeError, match=r"it differs in data( \(.*\))?\n"):
        go(began / "run", str(began / "there/start"), *data)


def test_changed_content_is_refused_anywhere(began: Path) -> None:
    there, run = began / "there", began / "run"
    data = (there / "a.parquet", there / "b.parquet")
    with pytest.raises(RecipeError, match=r"it differs in model( \(.*\))?\n"):
        go(run, weights(began / "others", b"v"), *data)
    data[0].write_text("else")
    with pytest.raises(RecipeError, match=r"it differs in data( \(.*\))?\n"):
        go(run, str(there / "start"), *data)
    data[0].rename(began / "a.parquet")
    data[1].rename(began / "b.parquet")
    with pytest.raises(DataError, match=r"a\.parquet is not the file that .* began with"):
        go(run, str(there / "start"), began / "a.parquet", began / "b.parquet")


def test_a_run_without_a_weight_fingerprint_needs_the_old_path(began: Path) -> None:
    there, run = began / "there", began / "run"
    file = run / "environment.json"
    old = json.loads(file.read_text())
    del old["weights"]
    file.write_text(json.dumps(old))
    with pytest.raises(RecipeError, match=r"it differs in model( \(.*\))?\n"):
        go(run, str(there / "start"), there / "a.parquet", there / "b.parquet")


def test_a_weight_fingerprint_covers_names_sizes_and_bytes(tmp_path: Path) -> None:
    content = bytes(3 * BLOCKS * BLOCK)
    first = weights_print(weights(tmp_path / "0", content))
    assert first == weights_print(weights(tmp_path / "1", content))
    for name in ("README.md", ".gitattributes"):
        (tmp_path / "1" / name).write_text("downloaded")
    assert first == weights_print(str(tmp_path / "1"))
    longer = weights_print(weights(tmp_path / "2", content + b"\0"))
    changed = bytearray(content)
    changed[5 * BLOCK : 8 * BLOCK] = b"\1" * (3 * BLOCK)  # pieces are two blocks apart
    assert len({first, longer, weights_print(weights(tmp_path / "3", bytes(changed)))}) == 3
    (tmp_path / "1/config.json").rename(tmp_path / "1/configuration.json")
    assert weights_print(str(tmp_path / "1")) != first
    assert weights_print("Qwen/Qwen2.5-VL-7B-Instruct") is None


INDEX = "tools.text_search.index"


class Searching(Strict):
    seed: int = 0
    tools: ToolsRecipe


def an_index(folder: Path, *texts: str) -> Path:
    folder.mkdir()
    build_index([Passage(id=text, title="", text=text) for text in texts], folder, lambda: None)
    return folder


def searching(index: Path, encoder: dict[str, str] | None = None) -> Searching:
    section = {"index": str(index), "encoder": encoder, "top_k": 1, "max_chars": 9}
    return Searching(tools=ToolsRecipe.model_validate({"text_search": section}))


def test_a_run_resumes_only_with_its_index_at_any_path(tmp_path: Path) -> None:
    index, run = an_index(tmp_path / "index", "Ulm", "Bern"), tmp_path / "run"
    start_run(run, searching(index), [], resume=False)
    assert list(json.loads((run / "environment.json").read_text())["indexes"]) == [INDEX]
    moved = index.rename(tmp_path / "there")
    start_run(run, searching(moved), [], resume=True)
    other = an_index(index, "Ulm", "Bonn")
    with pytest.raises(RecipeError, match=rf"it differs in {INDEX}( \(.*\))?\n"):
        start_run(run, searching(other), [], resume=True)
    moved.rename(tmp_path / "gone")
    other.rename(moved)
    with pytest.raises(RecipeError, match=f"it differs in the content of {INDEX}\n"):
        start_run(run, searching(moved), [], resume=True)


@pytest.mark.parametrize("before", [None, {"model": "old"}])
@pytest.mark.parametrize("now", [None, {"model": "new"}, {"model": "old", "device": "cuda"}])
def test_an_encoder_may_move_as_its_index_knows_its_weights(
    before: dict[str, str] | None, now: dict[str, str] | None, tmp_path: Path
) -> None:
    index, run = an_index(tmp_path / "index", "Ulm"), tmp_path / "run"
    start_run(run, searching(index, before), [], resume=False)
    start_run(run, searching(index, now), [], resume=True)
    started, resumed = (
        {"suite": searching(index, one).model_dump(mode="json") | {"kind": None}} for one in (before, now)
    )
    assert differing(started, resumed) == []


def test_a_run_without_an_index_fingerprint_needs_the_old_path(tmp_path: Path) -> None:
    index, run = an_index(tmp_path / "index", "Ulm"), tmp_path / "run"
    start_run(run, searching(index), [], resume=False)
    file = run / "environment.json"
    old = json.loads(file.read_text())
    del old["indexes"]
    file.write_text(json.dumps(old))
    start_run(run, searching(index), [], resume=True)
    with pytest.raises(RecipeError, match=rf"it differs in {INDEX}( \(.*\))?\n"):
        start_run(run, searching(index.rename(tmp_path / "there")), [], resume=True)


def test_an_index_fingerprint_ignores_the_encoders_path(tmp_path: Path) -> None:
    index = an_index(tmp_path / "index", "Ulm")
    facts = read_manifest(index, "passages")

    def encoded(model: str, fingerprint: str) -> str | None:
        write_manifest(index, facts | {"encoder": {"model": model, "fingerprint": fingerprint}})
        return index_print(index)

    assert encoded("a", "1") == encoded("b", "1") != encoded("a", "2")
    assert index_print(tmp_path / "none") is None
    assert index_prints(searching(tmp_path / "none")) == {}
    assert index_prints(Plan(model="m", data=())) == {}


@pytest.mark.parametrize(
    ("keys", "before", "now", "found"),
    [
        ([], {INDEX: "1"}, {INDEX: "1"}, []),
        (["seed", INDEX], {INDEX: "1"}, {INDEX: "1"}, ["seed"]),
        (["seed"], {INDEX: "1"}, {INDEX: "2"}, ["seed", f"the content of {INDEX}"]),
        ([INDEX], {INDEX: "1"}, {INDEX: "2"}, [INDEX]),
        ([INDEX], {}, {INDEX: "2"}, [INDEX]),
        ([], {INDEX: "1"}, {}, []),
    ],
)
def test_indexes_are_distinguished_by_content_if_known(
    keys: list[str], before: dict[str, str], now: dict[str, str], found: list[str]
) -> None:
    assert by_content(keys, before, now) == found
    there, here = (
        {"suite": dict.fromkeys(keys, number), **({"indexes": known} if known else {})}
        for number, known in ((1, before), (2, now))
    )
    assert [key.replace("suite.", "") for key in differing(there, here)] == found
