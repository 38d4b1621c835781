import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from transformers import Qwen2_5_VLModel

from tests.conftest import load
from tests.models.rows import ragged
from tests.models.test_batch import batched, logits
from vtune.errors import DataError, RunFailed
from vtune.models.families import FAMILIES
from vtune.models.pictures import PixelBudget
from vtune.models.policy import (
    Policy,
    load_chat,
    load_policy,
    load_skeleton,
    plain_shapes,
    policy_logprobs,
    save_policy,
)
from vtune.models.tiny import build_tiny
from vtune.update.gathered import without_weights

BUDGET = PixelBudget(min_pixels=3136, max_pixels=12544)


def loaded(folder: Path) -> Policy:
    return load_policy(str(folder), budget=BUDGET, dtype="float32", device=torch.device("cpu"))


def test_banned_tokens_have_no_probability(policy: Policy) -> None:
    width = policy.model.lm_head.weight.shape[0]
    size = len(policy.chat.tokenizer)
    assert size < width
    scores = torch.randn(4, width, generator=torch.Generator().manual_seed(0)) * 5
    found = policy_logprobs(scores, policy.chat)
    nothing = [*policy.chat.banned_ids, *range(size, width)]
    assert (found[:, nothing] == -torch.inf).all()
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(4))
    allowed = [i for i in range(size) if i not in policy.chat.banned_ids]
    torch.testing.assert_close(found[:, allowed], torch.log_softmax(scores[:, allowed], -1))


def test_log_probabilities_are_float32_whatever_the_dtype(policy: Policy) -> None:
    scores = torch.zeros(1, policy.model.lm_head.weight.shape[0], dtype=torch.bfloat16)
    assert policy_logprobs(scores, policy.chat).dtype == torch.float32


@torch.no_grad()
def test_a_saved_policy_is_complete_and_unchanged(each_policy: Policy, tmp_path: Path) -> None:
    source = Path(each_policy.model.config._name_or_path)
    save_policy(each_policy.model, str(source), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {path.name for path in source.iterdir()}
    again = load(tmp_path)
    first, second = (logits(p, batched(p, ragged(p))) for p in (each_policy, again))
    assert torch.equal(first, second)


def test_an_invalid_hub_name_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(DataError, match=r"no model folder nobody/nothing, and no hub .* refused"):
        load_chat("nobody/nothing")
    assert time.monotonic() - began < 10
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="HF_HUB_OFFLINE is set"):
        load_chat("nobody/nothing")


def test_a_folder_without_a_model_is_our_error(tmp_path: Path) -> None:
    for read in (loaded, lambda folder: load_chat(str(folder))):
        with pytest.raises(DataError, match="there is no model folder") as caught:
            read(tmp_path / "none")
        assert caught.value.fix


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def without_a_weight(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights[next(name for name in weights if name.endswith("layers.1.mlp.down_proj.weight"))]
    save_file(weights, file, metadata={"format": "pt"})


def of_another_width(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    values["text_config"]["intermediate_size"] = 200
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("spoil", "what", "where"),
    [
        (cut_short, "a file of weights is damaged", "model.safetensors"),
        (without_a_weight, r"hold no weights for model\.language_model\.layers\.1\.mlp\.down_proj", ""),
        (of_another_width, r"has the shape \(96, 288\) in the files, and \(96, 200\)", ""),
    ],
)
def test_missing_weights_are_never_initialised_randomly(
    spoil: Callable[[Path], None], what: str, where: str, policy: Policy, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(policy.model.config._name_or_path, folder)
    spoil(folder)
    with pytest.raises(DataError, match=what) as caught:
        loaded(folder)
    assert caught.value.where == str(folder / where)
    assert caught.value.fix


@pytest.mark.parametrize("size", [280, 2000], ids=["smaller", "larger"])
def test_the_tokenizer_of_another_model_is_refused(size: int, policy: Policy, tmp_path: Path) -> None:
    folder, other = tmp_path / "model", tmp_path / "other"
    shutil.copytree(policy.model.config._name_or_path, folder)
    build_tiny(other, [" ".join(map(hex, range(4000)))], seed=0, vocab_size=size)
    shutil.copy2(other / "tokenizer.json", folder)
    for read in (loaded, lambda folder: load_chat(str(folder))):
        with pytest.raises(DataError, match="the tokenizer is another model's") as caught:
            read(folder)
        assert caught.value.where == str(folder)
        assert caught.value.fix


def test_a_model_of_another_family_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(DataError, match="is a 'bert' model") as caught:
        loaded(tmp_path)
    assert all(name in caught.value.fix for name in FAMILIES)


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it ask the user, who might agree."""
    names = {"AutoConfig": "theirs.Config", "AutoModelForImageTextToText": "theirs.Model"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "theirs", "auto_map": names}))
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(DataError, match="cannot load"):
        load_skeleton(str(tmp_path))
    assert not (tmp_path / "was-run").exists()


def test_a_budget_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValidationError, match="min_pixels 9 exceeds max_pixels 8"):
        PixelBudget(min_pixels=9, max_pixels=8)
    PixelBudget(min_pixels=8, max_pixels=8)


def test_a_dangling_link_in_a_model_folder_is_not_a_traceback(tiny: Path, tmp_path: Path) -> None:
    """As in a hub cache whose blobs were removed."""
    folder = shutil.copytree(tiny, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match="cannot load a model"):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_truncated_model_file_is_reported(name: str, tiny: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny, tmp_path / "model")
    file = folder / name
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match="is not JSON") as caught:
        load(folder)
    assert caught.value.where == str(file)
    assert "again" in caught.value.fix


def test_weight_shapes_are_known_without_reading_the_weights(each_policy: Policy) -> None:
    named = [(name, p.dtype, tuple(p.shape)) for name, p in each_policy.model.named_parameters()]
    assert len(named) > 10
    emptied = replace(each_policy, model=without_weights(each_policy.model))
    assert plain_shapes(emptied) == named


def test_a_transformers_version_that_would_ignore_pictures_is_refused(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before 5.18: unknown arguments are passed on to the layers, which accept anything."""
    monkeypatch.setattr("transformers.__version__", "5.17.0")
    stock = Qwen2_5_VLModel.forward

    def older(self: object, input_ids: object = None, **options: object) -> object:
        return stock(self, input_ids, **options)

    monkeypatch.setattr(Qwen2_5_VLModel, "forward", older)
    with pytest.raises(RunFailed) as refused:
        loaded(tiny)
    assert "transformers 5.17.0" in str(refused.value)
    assert "would see none" in str(refused.value)
    assert "transformers>=5.18" in str(refused.value)
