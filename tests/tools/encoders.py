"""Tiny encoders of real classes with known vectors, so that the right passage is certain."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

WIDTH = 64


def build_encoder(
    folder: Path, words: Sequence[str], *, seed: int, same: Mapping[str, str] | None = None
) -> Path:
    """A BERT whose hidden states are its word vectors, so that their mean is a bag of words.

    Args:
        folder: Where to write it.
        words: Its vocabulary.
        seed: Seeds the word vectors.
        same: Word -> its synonym, which gets the same vector.
    """
    vocabulary = _vocabulary(words)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        layer_norm_eps=1.0,  # otherwise small vectors would be scaled up again
    )
    model = BertModel(config)
    with torch.no_grad():
        embeddings: Any = model.embeddings
        embeddings.position_embeddings.weight.zero_()
        embeddings.token_type_embeddings.weight.zero_()
        table = embeddings.word_embeddings.weight
        table.normal_(std=3.0)
        # Tokens in every text must not dominate its vector.
        for common in ("[CLS]", "[SEP]", ":", "query", "passage"):
            table[vocabulary[common]] *= 0.01
        for word, other in (same or {}).items():
            table[vocabulary[word]] = table[vocabulary[other]]
        for name, weight in model.named_parameters():
            if name.startswith("encoder") and "LayerNorm" not in name:
                weight.zero_()
    model.save_pretrained(folder)
    _save_tokenizer(vocabulary, folder, cls="[CLS]", sep="[SEP]")
    return folder


def build_decoder(folder: Path, words: Sequence[str], *, seed: int) -> Path:
    """A Qwen3 with random weights, whose last token represents the text."""
    vocabulary = _vocabulary(words)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    Qwen3Model(config).save_pretrained(folder)
    _save_tokenizer(vocabulary, folder, cls=None, sep="[SEP]")
    return folder


def _vocabulary(words: Sequence[str]) -> dict[str, int]:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ":", "query", "passage"]
    return {word: number for number, word in enumerate(dict.fromkeys([*special, *words]))}


def _save_tokenizer(vocabulary: Mapping[str, int], folder: Path, *, cls: str | None, sep: str) -> None:
    tokenizer = Tokenizer(models.WordLevel(dict(vocabulary), unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    special = [(name, vocabulary[name]) for name in (cls, sep) if name is not None]
    single = f"{cls} $A {sep}" if cls is not None else f"$A {sep}"
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    ).save_pretrained(folder)
