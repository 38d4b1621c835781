"""A tiny, randomly initialised model of a real class, with a tokenizer of its own.

It is the stock Qwen2.5-VL (or Qwen3-VL) of transformers in small: the same code path as a 7B model,
from loading to vLLM, in about half a million parameters.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Qwen2.5-VL's special tokens, in its order."""

TAGS = (
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "<code>",
    "</code>",
    "<sandbox_output>",
    "</sandbox_output>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
"""Tags as one token each, so that a half-million-parameter model need not spell them."""

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen's pre-tokenizer with numbers in groups of three digits, not one: a coordinate is one token."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML as Qwen2.5-VL prints it, without the default system turn."""

Family = Literal["qwen2_5_vl", "qwen3_vl"]


def build_tiny(
    folder: Path,
    corpus: Iterable[str],
    *,
    seed: int,
    family: Family = "qwen2_5_vl",
    vocab_size: int = 600,
) -> None:
    """Write a tiny model, its tokenizer and its processor to `folder` as a Hugging Face model.

    Measured choices (a plain default learns nothing): `initializer_range` 0.1, about 1/sqrt(hidden),
    or the model never looks at the image; rope theta 10, or the width axis is invisible on a grid of
    four tokens; full attention in every vision layer.

    Args:
        folder: Where to write; must not hold a model yet.
        corpus: Texts that the byte-level BPE is trained on.
        seed: Of the weights.
        family: Which class.
        vocab_size: Of the BPE before special tokens and tags.
    """
    tokenizer = _tokenizer(corpus, vocab_size)
    torch.manual_seed(seed)
    model = _model(tokenizer, family)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    _write_processor(folder, family)


def _tokenizer(corpus: Iterable[str], vocab_size: int) -> Any:
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
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    )
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    core.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    make: Any = transformers.PreTrainedTokenizerFast
    tokenizer = make(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        model_max_length=32768,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _model(tokenizer: Any, family: Family) -> Any:
    import transformers

    hf: Any = transformers
    ids = {
        name: tokenizer.convert_tokens_to_ids(token)
        for name, token in {
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
            "vision_start_token_id": "<|vision_start|>",
            "vision_end_token_id": "<|vision_end|>",
        }.items()
    }
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10.0, "mrope_section": [4, 6, 6]}
    text: dict[str, Any] = {
        "initializer_range": 0.1,
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "hidden_size": 96,
        "intermediate_size": 288,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "bos_token_id": pad,
        "eos_token_id": end,
        "pad_token_id": pad,
        "rope_parameters": rope,
    }
    vision: dict[str, Any] = {
        "initializer_range": 0.1,
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_heads": 4,
        "out_hidden_size": 96,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
    }
    if family == "qwen2_5_vl":
        vision |= {"patch_size": 14, "window_size": 112, "fullatt_block_indexes": [0, 1]}
        config = hf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids)
        model = hf.Qwen2_5_VLForConditionalGeneration(config)
    else:
        text |= {"head_dim": 32}
        rope["mrope_section"] = [6, 5, 5]
        rope["mrope_interleaved"] = True
        vision |= {"patch_size": 16, "num_position_embeddings": 256, "deepstack_visual_indexes": [0, 1]}
        config = hf.Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids)
        model = hf.Qwen3VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = [end, pad]
    model.generation_config.pad_token_id = pad
    model.generation_config.do_sample = True
    return model


def _write_processor(folder: Path, family: Family) -> None:
    """The processor's files, video section included, so that a stock AutoProcessor loads them too.

    Written by hand: the class that would write them needs torchvision.
    """
    patch = 14 if family == "qwen2_5_vl" else 16
    clip = family == "qwen2_5_vl"
    common = {
        "patch_size": patch,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "rescale_factor": 1 / 255,
        "resample": 3,
        "image_mean": [0.48145466, 0.4578275, 0.40821073] if clip else [0.5, 0.5, 0.5],
        "image_std": [0.26862954, 0.26130258, 0.27577711] if clip else [0.5, 0.5, 0.5],
        "size": {"shortest_edge": (2 * patch) ** 2 * 4, "longest_edge": (2 * patch) ** 2 * 1280},
    }
    kind = "Qwen2VL" if clip else "Qwen3VL"
    image = {**common, "image_processor_type": "Qwen2VLImageProcessor"}
    video = {**common, "video_processor_type": f"{kind}VideoProcessor"}
    processor = {
        "processor_class": "Qwen2_5_VLProcessor" if clip else "Qwen3VLProcessor",
        "image_processor": image,
        "video_processor": video,
    }
    for name, content in {
        "preprocessor_config.json": image,
        "video_preprocessor_config.json": video,
        "processor_config.json": processor,
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
