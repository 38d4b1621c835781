import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tests.pages import blocks
from tests.runs.commands import same_weights, vtune, with_nan
from tests.runs.data.test_validating import encoded
from vtune.errors import DataError, RunFailed
from vtune.models.policy import Dtype, Policy
from vtune.rollout.engine import Completion, Engine, Request
from vtune.rollout.transformers import TransformersEngine
from vtune.runs.train import export
from vtune.update.manifest import file_facts, write_manifest


def test_a_checkpoint_without_adapters_is_copied_without_what_is_the_runs(tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "run" / "checkpoints" / "newest"
    source.mkdir(parents=True)
    for path in tiny.iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    write_manifest(source, 4, {path.name: file_facts(path) for path in source.iterdir()})
    (source / "deepspeed").mkdir()
    ended = vtune("export", tmp_path / "run", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert (result["transformers"], result["merged"], result["dtype"]) == (0, False, "float32")
    assert result["vllm"] == "not checked: vllm is not installed"
    assert same_weights(tiny, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in tiny.iterdir()}
    assert not [*tmp_path.glob(".*.part")]
    weights = bytearray((source / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (source / "model.safetensors").write_bytes(weights)
    ended = vtune("export", tmp_path / "run", tmp_path / "again")
    assert ended.code == 2
    assert "damaged: model.safetensors is not as it was written" in ended.err
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("damaged", ["model.safetensors", "adapters/adapter_model.safetensors"])
def test_a_damaged_checkpoint_is_not_exported(damaged: str, tmp_path: Path) -> None:
    """Its weights load: a comparison of the copy with them would find no difference."""
    names = ["config.json", "model.safetensors", "adapters/adapter_model.safetensors"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    write_manifest(tmp_path, 4, {name: file_facts(tmp_path / name) for name in names})
    folder = (tmp_path / damaged).parent
    export.check_model(folder)
    (tmp_path / damaged).write_bytes(damaged.replace("e", "f").encode())
    with pytest.raises(DataError, match=f"{damaged} is not as it was written"):
        export.check_model(folder)
    (adapters,) = {"adapters", "."} - {str(folder.relative_to(tmp_path))}
    export.check_model(tmp_path / adapters)


def test_the_table_shows_the_comparison_with_its_unit(tiny: Path, tmp_path: Path) -> None:
    ended = vtune("export", tiny, tmp_path / "out")
    assert ended.code == 0, ended.err
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in ended.out.splitlines()]
    assert ["largest difference from the source, nats", "0"] in cells
    assert ["largest difference of vLLM, nats", "not checked: vllm is not installed"] in cells


def test_the_example_of_the_page_writes_a_reply(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = [block for block in blocks("cli/export.md") if "AutoImageProcessor" in block]
    (tmp_path / "exported").symlink_to(tiny)
    (tmp_path / "picture.png").write_bytes(encoded(84, 56))
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "cli/export.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_weights_are_written_in_the_requested_dtype(tiny3: Path, tmp_path: Path) -> None:
    ended = vtune("export", tiny3, tmp_path / "out", "--dtype", "bfloat16", "--json")
    assert ended.code == 0, ended.err
    assert {t.dtype for t in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}
    assert 0 < json.loads(ended.out)["transformers"] < 0.25
    again = vtune("export", tmp_path / "out", tmp_path / "third", "--json")
    assert json.loads(again.out)["dtype"] == "bfloat16"
    assert json.loads(again.out)["transformers"] == 0


def test_a_full_disk_is_a_message_of_the_export(
    tiny3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(export, "save_policy", full)
    ended = vtune("export", tiny3, tmp_path / "out", "--dtype", "bfloat16")
    assert ended.code == 1
    assert "the weights cannot be written: Error while serializing: I/O error: No space left" in ended.err
    assert "make room" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_half_precision_weights_are_reported_and_written_in_the_requested_dtype(
    tiny: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForImageTextToText

    half = tmp_path / "half"
    shutil.copytree(tiny, half)
    AutoModelForImageTextToText.from_pretrained(tiny, dtype=torch.float16).save_pretrained(half)
    for words, kind in (((), torch.float16), (("--dtype", "float32"), torch.float32)):
        out = tmp_path / str(kind)
        ended = vtune("export", half, out, *words, "--json")
        assert ended.code == 0, ended.err
        assert f"torch.{json.loads(ended.out)['dtype']}" == str(kind)
        assert json.loads(ended.out)["transformers"] < 1e-4
        assert {t.dtype for t in load_file(out / "model.safetensors").values()} == {kind}


@pytest.fixture
def adapters(tiny: Path, tmp_path: Path) -> Path:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_pretrained(tiny)
    wide = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"]))
    for name, parameter in wide.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    wide.save_pretrained(tmp_path / "adapters")
    return tmp_path / "adapters"


def test_merged_adapters_are_the_same_policy(adapters: Path, tiny: Path, tmp_path: Path) -> None:
    ended = vtune("export", adapters, tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert result["merged"]
    assert result["transformers"] < 1e-4
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny, tmp_path / "out"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert changed
    assert all("q_proj" in name or "down_proj" in name for name in changed)


def test_a_head_added_by_adapters_is_also_in_the_config(tiny: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(tiny)
    how = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["lm_head"])
    wide = get_peft_model(model, how)
    for name, parameter in wide.named_parameters():
        if "lm_head.modules_to_save" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    wide.save_pretrained(tmp_path / "adapters")
    ended = vtune("export", tmp_path / "adapters", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["transformers"] < 1e-4
    assert "lm_head.weight" in load_file(tmp_path / "out" / "model.safetensors")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert not config["tie_word_embeddings"]
    assert not config["text_config"]["tie_word_embeddings"]


def renamed(file: Path) -> None:
    """Rename the layers as in an older transformers."""
    older = {name.replace(".language_model.", "."): one for name, one in load_file(file).items()}
    save_file(older, file, metadata={"format": "pt"})


def halved(file: Path) -> None:
    half = {name: one for name, one in load_file(file).items() if "layers.1" not in name}
    save_file(half, file, metadata={"format": "pt"})


def narrowed(file: Path) -> None:
    narrow = {name: one[:, :3].contiguous() for name, one in load_file(file).items()}
    save_file(narrow, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (renamed, "8 matrices of adapters are not in the file"),
        (halved, "4 matrices of adapters are not in the file"),
        (narrowed, "cannot be applied to their base"),
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "cannot be applied to their base"),
        (lambda file: file.unlink(), "neither adapter_model.safetensors"),
    ],
    ids=["renamed", "halved", "narrowed", "cut short", "missing"],
)
def test_incompletely_merged_adapters_are_not_exported(
    spoil: Callable[[Path], None], what: str, adapters: Path, tmp_path: Path
) -> None:
    spoil(adapters / "adapter_model.safetensors")
    ended = vtune("export", adapters, tmp_path / "out")
    assert ended.code == 2
    assert all(part in ended.err for part in (what, str(adapters), "fix"))
    assert not (tmp_path / "out").exists()


def test_a_changed_policy_is_not_exported_and_leaves_nothing(
    adapters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        export, "save_policy", lambda model, source, folder: export._copy(Path(source), folder)
    )
    ended = vtune("export", adapters, tmp_path / "out")
    assert ended.code == 1
    assert "the exported model differs" in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapters"]


def test_an_impossible_export_is_reported(tiny: Path, adapters: Path, tmp_path: Path) -> None:
    assert "exists" in vtune("export", tiny, adapters).err
    empty = vtune("export", tmp_path, tmp_path / "out")
    assert (empty.code, "holds no model" in empty.err) == (2, True)
    config = json.loads((adapters / "adapter_config.json").read_text())
    (adapters / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "gone"}))
    cached = "'gone', is neither a folder here nor in the hub's cache"
    assert cached in vtune("export", adapters, tmp_path / "out").err
    assert vtune("export", tiny, tmp_path / "out", "--dtype", "int8").code == 2


def test_nan_weights_are_not_exported(tiny: Path, tmp_path: Path) -> None:
    ended = vtune("export", with_nan(tiny, tmp_path / "broken"), tmp_path / "out", "--json")
    assert (ended.code, ended.out) == (1, "")
    assert "give values that are not numbers" in ended.err
    assert "fix" in ended.err
    assert not (tmp_path / "out").exists()


class Off:
    """An engine whose log-probabilities are slightly off."""

    def __init__(self, engine: Engine, by: float) -> None:
        self._engine = engine
        self._by = by
        self.join, self.leave = engine.join, engine.leave

    async def generate(self, request: Request) -> Completion:
        drawn = await self._engine.generate(request)
        return replace(drawn, logprobs=tuple(value + self._by for value in drawn.logprobs))


@pytest.mark.parametrize("by", [0.0, 0.01, nan])
def test_an_engine_must_give_the_log_probabilities_of_transformers(tiny: Path, by: float) -> None:
    @contextlib.asynccontextmanager
    async def start(policy: Policy, folder: Path, dtype: Dtype) -> AsyncIterator[Engine]:
        yield Off(TransformersEngine(policy, max_batch=1), by)  # type: ignore[misc]

    if by:
        with pytest.raises(RunFailed, match=f"differ by {by}"):
            asyncio.run(export._drawn(tiny, start))
    else:
        assert asyncio.run(export._drawn(tiny, start)) < 1e-4


def test_a_run_without_a_checkpoint_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/recipe.yaml").write_text("steps: 2\n")
    ended = vtune("export", tmp_path / "run", tmp_path / "model")
    assert (ended.code, "holds a run without a checkpoint yet" in ended.err) == (2, True), ended.err
