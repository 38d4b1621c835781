"""A text encoder: queries and passages become vectors whose inner product says how well they match.

Published families differ in the prefix of a text, in which hidden states represent it, and in whether vectors
are normalised to length 1. Each works well only in the way in which it was trained.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import read_text
from vtune.models.source import check_local, quiet, resolved, unloadable
from vtune.models.weights import TOKENIZER, fingerprint

Pooling = Literal["mean", "cls", "last"]

Vectors = NDArray[np.float32]
"""Shape (texts, width)."""

BATCH_TOKENS = 16_384
"""Tokens in one forward pass, including padding; ours."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How a family of encoders reads texts."""

    pooling: Pooling
    """`mean` of the tokens of a text, the first token (`cls`), or the `last` one."""
    query_prefix: str
    passage_prefix: str
    normalise: bool
    """Whether vectors are scaled to length 1, so that the inner product is the cosine."""
    max_tokens: int
    """Longer texts are truncated; includes the prefix and special tokens."""


FAMILIES: Mapping[str, EncoderSettings] = {
    # intfloat/e5-*-v2 and multilingual-e5-*: Wang et al. 2022, arXiv:2212.03533, and their model cards.
    "e5": EncoderSettings("mean", "query: ", "passage: ", normalise=True, max_tokens=512),
    # BAAI/bge-*-en-v1.5: Xiao et al. 2023, arXiv:2309.07597, and their model cards.
    "bge": EncoderSettings(
        "cls",
        "Represent this sentence for searching relevant passages: ",
        "",
        normalise=True,
        max_tokens=512,
    ),
    # Qwen/Qwen3-Embedding-*: Zhang et al. 2025, arXiv:2506.05176; the instruction is their `query` prompt.
    "qwen3": EncoderSettings(
        "last",
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
        "",
        normalise=True,
        max_tokens=8192,
    ),
    # facebook/contriever*: Izacard et al. 2021, arXiv:2112.09118; inner product of plain means.
    "contriever": EncoderSettings("mean", "", "", normalise=False, max_tokens=512),
}
"""How the encoders of each family were trained."""

_POOLINGS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
"""Keys of `1_Pooling/config.json`, which models for sentence-transformers have."""


class Encoder:
    """A loaded encoder; threads may share it.

    Args:
        name: Folder or hub name.
        settings: How it reads texts.
        device: Where it runs: in float32 on a CPU, in float16 elsewhere.

    Raises:
        DataError: If it cannot be loaded, embeds more than text, or its own files specify another pooling.
    """

    def __init__(self, name: str, settings: EncoderSettings, *, device: torch.device) -> None:
        from transformers import AutoModel, AutoTokenizer

        quiet()
        check_local(name)
        try:
            # Otherwise the user is asked whether to run code that comes with a model; an index may name any
            # model.
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            dtype = torch.float32 if device.type == "cpu" else torch.float16
            model: Any = AutoModel.from_pretrained(name, dtype=dtype, trust_remote_code=False)
            folder = folder_of(name)
        except (OSError, ValueError) as error:
            raise unloadable(name, error) from error
        if not hasattr(model.config, "hidden_size"):
            raise DataError(
                f"{name} embeds more than texts ({type(model).__name__})",
                fix="give a text encoder; for pictures, add --pictures",
            )
        if self._tokenizer.pad_token_id is None:
            raise DataError(f"the tokenizer of {name} has no padding token", fix="give a text encoder")
        _check_pooling(folder, settings.pooling)
        self._model: Any = model.to(device).eval()
        self._device = device
        self._settings = settings
        limits = (self._tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None))
        self._max_tokens = min(settings.max_tokens, *(limit for limit in limits if limit))
        self._lock = threading.Lock()
        self.width: int = model.config.hidden_size
        """Length of a vector."""
        self.facts: Mapping[str, Any] = {
            "model": resolved(name),
            "fingerprint": fingerprint(folder, TOKENIZER),
            **asdict(settings),
        }
        """What an index records about it: who embedded the passages, and how queries must be embedded."""

    def queries(self, texts: Sequence[str]) -> Vectors:
        """The vectors of queries, in their order."""
        return self._embed([self._settings.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> Vectors:
        """The vectors of passages, in their order."""
        return self._embed([self._settings.passage_prefix + text for text in texts])

    def _embed(self, texts: Sequence[str]) -> Vectors:
        out = np.empty((len(texts), self.width), dtype=np.float32)
        # A truncating tokenizer has mutable state, and several threads may call it.
        with self._lock, torch.inference_mode():
            tokens = self._tokenizer(list(texts), truncation=True, max_length=self._max_tokens)["input_ids"]
            for batch in _batches([len(one) for one in tokens]):
                out[batch] = self._forward([tokens[number] for number in batch]).cpu().numpy()
        return out

    def _forward(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """Pooled vectors of token ids, padded on the right: float32, (rows, width)."""
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), self._tokenizer.pad_token_id)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row)
        lengths = torch.tensor([len(row) for row in rows])
        mask = (torch.arange(longest)[None, :] < lengths[:, None]).to(self._device)
        hidden = self._model(input_ids=ids.to(self._device), attention_mask=mask.long()).last_hidden_state
        pooled = pool(hidden.float(), mask, self._settings.pooling)
        return torch.nn.functional.normalize(pooled, dim=-1) if self._settings.normalise else pooled


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """One vector per text.

    Args:
        hidden: States, (texts, tokens, width); padding is on the right.
        mask: Which of them are tokens of the text, (texts, tokens), boolean; at least one per text.
        pooling: See `EncoderSettings`.

    Returns:
        Shape (texts, width).
    """
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "last":
        return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(dim=1) - 1]
    kept = hidden.masked_fill(~mask[..., None], 0.0)
    return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Batches of text indices of similar length, at most `BATCH_TOKENS` tokens each, including padding."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: lengths[n], reverse=True):
        if batch and lengths[batch[0]] * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def folder_of(name: str) -> Path:
    """Where the files of a model are: the folder itself, or its folder in the hub's cache."""
    from transformers.utils.hub import cached_file

    return Path(str(cached_file(name, "config.json"))).parent


def _check_pooling(folder: Path, pooling: Pooling) -> None:
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return
    try:
        config = parse_json(read_text(path))
    except (OSError, ValueError) as error:
        raise DataError(f"not JSON: {error}", where=str(path), fix="download the model again") from None
    named = {mode for key, mode in _POOLINGS.items() if isinstance(config, dict) and config.get(key)}
    if named and pooling not in named:
        raise DataError(
            f"the model pools by {' and '.join(sorted(named))}, not by {pooling}",
            where=str(path),
            fix="name its family: "
            + ", ".join(f"{name} ({settings.pooling})" for name, settings in FAMILIES.items()),
        )
