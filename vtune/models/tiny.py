"""A tiny, randomly initialised model of a real class, with its own tokenizer.

It is a scaled-down version of a family's stock transformers class: the same code path as a 7B model, from
loading to vLLM, in about half a million parameters. Its contents are described in the family's file.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from vtune.files.writing import open_to_others
from vtune.models.families import FAMILIES
from vtune.models.families.family import Family, TinyModel
from vtune.models.import_stubs import without_gpu, without_mlflow
from vtune.models.source import quiet

TAGS = (
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "<code>",
    "</code>",
    "<sandbox_output>",
    "</sandbox_output>",
)
"""Tags that are one token each, besides those of the tool template, so that a tiny model need not spell
them."""

FIRST = next(iter(FAMILIES))
"""The family that is built by default."""


def build_tiny(
    folder: Path,
    corpus: Iterable[str],
    *,
    seed: int,
    family: str = FIRST,
    vocab_size: int = 600,
) -> None:
    """Write a tiny model, its tokenizer and its processor to `folder` as a Hugging Face model.

    Args:
        folder: Target folder; must not hold a model yet.
        corpus: Texts to train the byte-level BPE on.
        seed: Seed of the weights.
        family: A name in `FAMILIES`.
        vocab_size: Size of the BPE vocabulary, without special tokens and tags.
    """
    known = FAMILIES[family]
    tokenizer = _tokenizer(corpus, vocab_size, known)
    torch.manual_seed(seed)
    model = _model(tokenizer, known.tiny)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    quiet()
    without_gpu()
    with without_mlflow():  # transformers checks whether DeepSpeed has wrapped the model
        model.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):
        open_to_others(weights)
    _write_processor(folder, known.tiny)


def _tokenizer(corpus: Iterable[str], vocab_size: int, family: Family) -> Any:
    import transformers
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.NFC()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(family.tiny.split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    )
    core.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in family.tiny.special]
    )
    tags = (*TAGS, *family.tools.tags)
    core.add_tokens([AddedToken(token, special=False, normalized=False) for token in tags])
    make: Any = transformers.PreTrainedTokenizerFast
    tokenizer = make(
        tokenizer_object=core,
        eos_token=family.tiny.end,
        pad_token=family.tiny.pad,
        padding_side="left",
        model_max_length=32768,
    )
    tokenizer.chat_template = family.tiny.template
    return tokenizer


def _model(tokenizer: Any, tiny: TinyModel) -> Any:
    model = tiny.model(tokenizer)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.generation_config.eos_token_id = [end, pad]
    model.generation_config.pad_token_id = pad
    model.generation_config.do_sample = True
    return model


def _write_processor(folder: Path, tiny: TinyModel) -> None:
    # Written by hand: the class that would write them needs torchvision.
    for name, content in tiny.files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
