import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from tests.tools.encoders import WIDTH, build_decoder, build_encoder
from tests.tools.test_picture_index import build_clip
from vtune.errors import DataError
from vtune.models import encoder as encoders
from vtune.models.encoder import FAMILIES, Encoder, EncoderSettings, Pooling, pool

WORDS = ["ferry", "sark", "island", "sails", "to", "the", "golf"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_encoder(tmp_path_factory.mktemp("bert"), WORDS, seed=0)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_decoder(tmp_path_factory.mktemp("qwen3"), WORDS, seed=0)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_vector_does_not_depend_on_the_rest_of_the_batch(
    family: str, bert: Path, decoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the padding, the order of lengths and the batch size."""
    monkeypatch.setattr(encoders, "BATCH_TOKENS", 24)
    model = Encoder(str(decoder if family == "qwen3" else bert), FAMILIES[family], device=CPU)
    texts = ["ferry", "the ferry sails to sark", "golf", "the island", "sark island ferry golf to the sails"]
    together = model.passages(texts)
    assert together.shape == (5, WIDTH)
    for text, vector in zip(texts, together, strict=True):
        assert model.passages([text])[0] == pytest.approx(vector, abs=1e-5)
    lengths = np.linalg.norm(together, axis=1)
    if FAMILIES[family].normalise:
        assert lengths == pytest.approx(1, abs=1e-5)
    else:
        assert np.ptp(lengths) > 0.01


def test_an_e5_embedding_is_the_mean_over_tokens_with_the_prefix(bert: Path) -> None:
    """Compared with the model card's computation in the stock classes."""
    model = Encoder(str(bert), FAMILIES["e5"], device=CPU)
    stock = AutoModel.from_pretrained(bert).eval()
    tokens = json.loads((bert / "tokenizer.json").read_text())["model"]["vocab"]
    for vector, prefix in (
        (model.queries(["ferry sark"])[0], "query"),
        (model.passages(["ferry sark"])[0], "passage"),
    ):
        ids = [tokens[word] for word in ("[CLS]", prefix, ":", "ferry", "sark", "[SEP]")]
        with torch.no_grad():
            mean = stock(torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
        assert vector == pytest.approx((mean / mean.norm()).numpy(), abs=1e-6)
    assert model.queries(["ferry"])[0] != pytest.approx(model.passages(["ferry"])[0], abs=1e-6)


def test_a_decoder_is_read_at_its_last_token(decoder: Path) -> None:
    model = Encoder(str(decoder), replace(FAMILIES["qwen3"], normalise=False), device=CPU)
    tokens = json.loads((decoder / "tokenizer.json").read_text())["model"]["vocab"]
    stock = AutoModel.from_pretrained(decoder).eval()
    ids = [tokens[word] for word in ("ferry", "sark", "[SEP]")]
    with torch.no_grad():
        last = stock(torch.tensor([ids])).last_hidden_state[0, -1]
    found = model.passages(["ferry sark", "the ferry sails to sark"])[0]
    assert found == pytest.approx(last.numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", [[1.5], [7.0]]), ("cls", [[1.0], [7.0]]), ("last", [[2.0], [7.0]])]
)
def test_padding_is_never_pooled(pooling: Pooling, expected: list[list[float]]) -> None:
    hidden = torch.tensor([[[1.0], [2.0], [float("nan")]], [[7.0], [float("nan")], [9.0]]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert pool(hidden, mask, pooling).tolist() == expected


def test_overlong_text_is_truncated_at_the_models_limit(bert: Path) -> None:
    model = Encoder(str(bert), FAMILIES["e5"], device=CPU)
    long = " ".join(["ferry"] * 500)
    assert model.passages([long])[0] == pytest.approx(model.passages([long + " golf"])[0])


def test_a_fingerprint_covers_weights_and_tokenizer_but_not_the_path(bert: Path, tmp_path: Path) -> None:
    def fingerprint(folder: Path) -> str:
        told: str = Encoder(str(folder), FAMILIES["e5"], device=CPU).facts["fingerprint"]
        return told

    here = fingerprint(bert)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in bert.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    assert fingerprint(moved) == here
    weights = bytearray((moved / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (moved / "model.safetensors").write_bytes(weights)
    assert fingerprint(moved) != here
    assert fingerprint(build_encoder(tmp_path / "other", [*WORDS, "hotel"], seed=0)) != here


def test_a_model_with_a_pooling_config_is_not_pooled_differently(bert: Path, tmp_path: Path) -> None:
    folder = build_encoder(tmp_path / "bge", WORDS, seed=1)
    (folder / "1_Pooling").mkdir()
    told = {
        "word_embedding_dimension": WIDTH,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(told))
    Encoder(str(folder), FAMILIES["bge"], device=CPU)
    with pytest.raises(DataError, match="pools by cls, not by mean") as caught:
        Encoder(str(folder), FAMILIES["e5"], device=CPU)
    assert "bge (cls)" in caught.value.fix
    (folder / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        Encoder(str(folder), FAMILIES["bge"], device=CPU)


def test_a_model_that_is_not_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no model folder"):
        Encoder(str(tmp_path / "none"), FAMILIES["e5"], device=CPU)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="cannot load"):
        Encoder(str(tmp_path), FAMILIES["e5"], device=CPU)


def test_settings_are_restored_from_an_index(bert: Path) -> None:
    facts = Encoder(str(bert), FAMILIES["bge"], device=CPU).facts
    kept = {
        key: value
        for key, value in json.loads(json.dumps(facts)).items()
        if key not in ("model", "fingerprint")
    }
    assert EncoderSettings(**kept) == FAMILIES["bge"]
    assert asdict(FAMILIES["bge"]) == kept


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it ask the user, who might agree: an index may name a model by its unknown builder."""
    folder = build_encoder(tmp_path, WORDS, seed=0)
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "theirs", "auto_map": names}))
    (folder / "theirs.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(DataError, match="cannot load"):
        Encoder(str(folder), FAMILIES["e5"], device=CPU)
    assert not (tmp_path / "was-run").exists()


def test_clip_is_not_accepted_as_a_text_encoder(bert: Path, tmp_path: Path) -> None:
    model = build_clip(tmp_path / "clip", seed=0)
    for file in bert.glob("*token*"):
        shutil.copy(file, model)
    with pytest.raises(DataError, match="embeds more than texts") as caught:
        Encoder(str(model), FAMILIES["e5"], device=CPU)
    assert "--pictures" in caught.value.fix
