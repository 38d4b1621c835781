"""`vtune export`: a checkpoint as a plain Hugging Face folder, verified to be the same policy."""

import asyncio
import contextlib
import gc
import importlib.util
import io
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from vtune.errors import DataError, RecipeError, RunFailed
from vtune.files.json_text import read_record
from vtune.files.terminal import brief
from vtune.files.writing import atomic_folder, check_folder_output
from vtune.models.adapter_files import CONFIG, WEIGHTS
from vtune.models.pictures import PixelBudget, Pixels
from vtune.models.policy import Dtype, Policy, load_policy, policy_logprobs, save_policy
from vtune.models.shape import local_config
from vtune.models.source import resolved
from vtune.rollout.engine import Engine, Request, Sampling
from vtune.schema.message import Message
from vtune.update.lora import ADAPTER
from vtune.update.manifest import MANIFEST, check_model

ADAPTER_WEIGHTS = (WEIGHTS, "adapter_model.bin")
"""The files in which peft stores adapters."""
OURS = (MANIFEST,)
"""Files of a checkpoint that belong to the run rather than the model."""
TOLERANCE = {"float32": 1e-4, "float16": 0.03, "bfloat16": 0.25}
"""Largest difference of a log-probability, nats: rounding stays below it, errors do not."""
BUDGET = PixelBudget(min_pixels=3136, max_pixels=50176)
"""Pixel budget of the check's picture."""
SAID = "The picture shows a red field that turns blue."
DRAWN = 32
"""Tokens that an engine generates for the check."""

Drawer = Callable[[Policy, Path, Dtype], "contextlib.AbstractAsyncContextManager[Engine]"]
"""Starts an engine on a model folder."""


def run_export(source: Path, out: Path, *, dtype: Dtype | None, vllm: Drawer) -> dict[str, Any]:
    """Write `source` to `out` so that any Hugging Face tool can load it; `out` is complete or does not exist.

    Args:
        source: A checkpoint, a run folder (its newest checkpoint), or a folder of peft adapters.
        out: The new folder.
        dtype: Type of the weights; None: as in the checkpoint.
        vllm: Starts vLLM on a model folder.

    Returns:
        `model` (the folder), `dtype`, `merged` (whether there were adapters), `parameters`, `transformers`
        (largest difference of a log-probability from the source, nats) and `vllm` (the same between vLLM and
        transformers, or why it was not checked).

    Raises:
        DataError: If `source` holds no model.
        RecipeError: If `out` exists.
        RunFailed: If the new folder does not behave like the source.
    """
    source = _checkpoint(source)
    if out.exists():
        raise RecipeError(f"{out} exists", fix="choose another folder, or remove it")
    check_folder_output(out, option="folder")
    with atomic_folder(out, option="folder") as partial:
        result = _filled(source, partial, dtype) | {"vllm": _by_engine(partial, vllm)}
    return {"model": str(out)} | result


def _checkpoint(source: Path) -> Path:
    folder = Path(resolved(str(source)))
    if not any((folder / name).is_file() for name in ("config.json", CONFIG)):
        if (source / "recipe.yaml").is_file():
            fix = "train until one is written (checkpoints.every), or name another run"
            raise DataError(f"{source} holds a run without a checkpoint yet", fix=fix)
        raise DataError(f"{source} holds no model", fix="give a checkpoint, or the folder of a run")
    return folder


def _filled(source: Path, folder: Path, dtype: Dtype | None) -> dict[str, Any]:
    """Write the weights and compare them with the source."""
    merged = (source / CONFIG).is_file()
    base = _base(source) if merged else source
    for one in {source, base}:
        check_model(one)
    stored = _stored_dtype(base)
    chosen = dtype or stored
    before = _loaded(str(base), "float32")
    if merged:
        before = _with_adapters(before, source)
    said = _logprobs(before, *_question(before))
    if said.isnan().any():
        raise RunFailed(
            f"the weights of {source} give values that are not numbers", fix="export an earlier checkpoint"
        )
    if merged or chosen != stored:
        model = before.model.merge_and_unload() if merged else before.model
        _say_whether_tied(model)
        _saved(model.to(getattr(torch, chosen)), str(base), folder)
        del model
    else:
        _copy(source, folder)
    del before
    gc.collect()
    after = _loaded(str(folder), "float32")
    difference = float((_logprobs(after, *_question(after)) - said).abs().max())
    if not difference <= TOLERANCE[chosen]:  # NaN counts as a difference too
        raise RunFailed(f"the exported model differs from {source} by {difference:.3g} nats")
    parameters = sum(parameter.numel() for parameter in after.model.parameters())
    return {"dtype": chosen, "merged": merged, "parameters": parameters, "transformers": difference}


def _saved(model: torch.nn.Module, base: str, folder: Path) -> None:
    from safetensors import SafetensorError

    try:
        save_policy(model, base, folder)
    except SafetensorError as error:  # also if the disk is full
        raise RunFailed(
            f"the weights cannot be written: {brief(str(error), most=300)}",
            fix="make room (`df -h`), or choose another folder",
        ) from None


def _base(adapters: Path) -> Path:
    """The model that adapters were trained on."""
    name = read_record(adapters / CONFIG, "base_model_name_or_path", fix="restore the folder of adapters")[
        "base_model_name_or_path"
    ]
    config = local_config(name) if isinstance(name, str) else None
    if config is None:
        fix = f"write its folder into base_model_name_or_path of {adapters / CONFIG}"
        raise DataError(
            f"the model under the adapters, {name!r}, is neither a folder here nor in the hub's cache",
            fix=fix,
        )
    return config.parent


def _stored_dtype(folder: Path) -> str:
    """The type of a folder's weights: one of `TOLERANCE`.

    Raises:
        DataError: If it is a different one.
    """
    config = read_record(folder / "config.json", fix="restore the model's folder")
    found = config.get("dtype", config.get("torch_dtype")) or "float32"
    if found not in TOLERANCE:
        raise DataError(
            f"its weights are of type {found}",
            where=str(folder),
            fix=f"convert them to {', '.join(TOLERANCE)} first",
        )
    return str(found)


def _with_adapters(policy: Policy, source: Path) -> Policy:
    """The policy with the adapters of a folder loaded onto its weights.

    Raises:
        DataError: If they are missing, or do not all belong to this model: peft would ignore those that match
            no layer.
    """
    from peft import PeftModel
    from safetensors import SafetensorError

    if not any((source / name).is_file() for name in ADAPTER_WEIGHTS):
        raise DataError(
            f"the folder has neither {' nor '.join(ADAPTER_WEIGHTS)}",
            where=str(source),
            fix="restore the folder of adapters",
        )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found missing adapter keys")  # treated as an error below
            model = PeftModel.from_pretrained(policy.model, str(source)).eval()
            found = model.load_adapter(str(source), ADAPTER)
    except (ValueError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"the adapters cannot be applied to their base: {brief(str(error), most=300)}",
            where=str(source),
            fix=f"check that {CONFIG} names the base that they were trained on; restore any file "
            "that was cut short",
        ) from error
    if found.missing_keys or found.unexpected_keys:
        lacking, left = ([*keys, "none"][0] for keys in (found.missing_keys, found.unexpected_keys))
        raise DataError(
            f"{len(found.missing_keys)} matrices of adapters are not in the file ({lacking}), and "
            f"{len(found.unexpected_keys)} of the file belong to no layer ({left})",
            where=str(source),
            fix="the file may name layers as an older transformers did: rename them, or merge them with the "
            "version that they were trained with",
        )
    return replace(policy, model=model)


def _say_whether_tied(model: Any) -> None:
    """Mark the configuration as untied if adapters brought a separate output head.

    peft does that in only one of two places: a tool that reads the language model's configuration would drop
    the head.
    """
    if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
        for config in (model.config, model.config.get_text_config()):
            config.tie_word_embeddings = False


def _copy(source: Path, folder: Path) -> None:
    for path in source.iterdir():
        if path.is_file() and path.name not in OURS:
            shutil.copy2(path, folder / path.name)


def _loaded(folder: str, dtype: Dtype) -> Policy:
    policy = load_policy(folder, budget=BUDGET, dtype=dtype, device=torch.device("cpu"))
    policy.model.eval()
    return policy


def _question(policy: Policy) -> tuple[list[int], Pixels, list[int]]:
    """A prompt with a picture, the picture, and a reply; always the same for the same tokenizer."""
    shades = torch.linspace(0, 255, 112).round().to(torch.uint8)
    pixels = torch.stack([shades.flip(0), torch.zeros_like(shades), shades], dim=-1).expand(84, -1, -1)
    out = io.BytesIO()
    Image.fromarray(pixels.contiguous().numpy()).save(out, "PNG")
    seen = policy.pictures.read(out.getvalue())
    prompt = policy.chat.prompt([Message("user", "<image>What is this?")], [seen])
    return list(prompt), seen, list(policy.chat.words(SAID))


@torch.no_grad()
def _logprobs(policy: Policy, prompt: list[int], seen: Pixels, reply: list[int]) -> torch.Tensor:
    """For each token of a reply, shape (T,), from the model's own forward pass, with none of vtune's code."""
    ids = torch.tensor([[*prompt, *reply]], device=policy.device)
    logits = policy.model(
        **policy.family.inputs(
            ids, policy.chat.image_id, seen.patches.to(policy.device, policy.model.dtype), [seen.grid]
        ),
        attention_mask=torch.ones_like(ids),
        use_cache=False,
    ).logits[0, len(prompt) - 1 : -1]
    found = policy_logprobs(logits, policy.chat)
    return found.gather(1, ids[0, len(prompt) :, None])[:, 0].cpu()


def _by_engine(folder: Path, start: Drawer) -> float | str:
    """How far vLLM is from transformers on tokens it generates itself, nats; or why it was not measured."""
    if importlib.util.find_spec("vllm") is None:
        return "not checked: vllm is not installed"
    return asyncio.run(_drawn(folder, start))


async def _drawn(folder: Path, start: Drawer) -> float:
    # Nothing here computes in float16: such weights are compared in float32.
    dtype: Dtype = "bfloat16" if _stored_dtype(folder) == "bfloat16" else "float32"
    policy = _loaded(str(folder), dtype)
    prompt, seen, _ = _question(policy)
    async with start(policy, folder, dtype) as engine:
        engine.join(0)
        sampling = Sampling(temperature=1.0, max_new_tokens=DRAWN)
        request = Request(token_ids=prompt, pixels=[seen], sampling=sampling, key=(0, 0, 0, 0, 0))
        reply = await engine.generate(request)
        engine.leave(0)
    ours = _logprobs(policy, prompt, seen, list(reply.token_ids))
    difference = float((ours - torch.tensor(reply.logprobs)).abs().max())
    if not difference <= TOLERANCE[dtype]:
        raise RunFailed(f"vLLM's log-probabilities differ by {difference:.3g} nats from transformers'")
    return difference
