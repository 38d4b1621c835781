"""A run continues where its data and its starting weights lie at another place, and with no others."""

import json
from pathlib import Path

import pytest
import yaml

from vtune.config import Strict
from vtune.errors import DataError, RecipeError
from vtune.runs.folder import start_run
from vtune.runs.moved import BLOCK, BLOCKS, weights_print


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
    """A run with two files of data, and all that it began with moved away."""
    files = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    for file in files:
        file.write_text(file.name)
    go(tmp_path / "run", weights(tmp_path / "start"), *files, resume=False)
    (tmp_path / "there").mkdir()
    for path in (*files, tmp_path / "start"):
        path.rename(tmp_path / "there" / path.name)
    return tmp_path


def test_data_and_weights_may_lie_elsewhere_and_the_run_knows_where(began: Path) -> None:
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


def test_changed_content_is_refused_at_any_place(began: Path) -> None:
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


def test_a_run_that_knows_no_print_of_its_weights_wants_them_where_they_were(began: Path) -> None:
    there, run = began / "there", began / "run"
    file = run / "environment.json"
    old = json.loads(file.read_text())
    del old["weights"]
    file.write_text(json.dumps(old))
    with pytest.raises(RecipeError, match=r"it differs in model( \(.*\))?\n"):
        go(run, str(there / "start"), there / "a.parquet", there / "b.parquet")


def test_a_print_of_weights_sees_names_sizes_and_any_run_of_bytes(tmp_path: Path) -> None:
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
