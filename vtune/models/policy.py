"""The policy: a vision-language model with everything that turns turns into tokens."""

import functools
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vtune.errors import DataError, RunFailed
from vtune.files.terminal import brief
from vtune.files.writing import open_to_others
from vtune.models.chat import Chat
from vtune.models.families import family_of
from vtune.models.families.family import Family
from vtune.models.import_stubs import uncollected, without_gpu, without_mlflow, without_optimizers
from vtune.models.pictures import PictureReader, PixelBudget
from vtune.models.shape import shape_of
from vtune.models.source import check_local, quiet, unloadable

if TYPE_CHECKING:
    import torch

Dtype = Literal["float32", "bfloat16"]

ENCODED = "mm_encoder_outputs"
"""The argument by which a transformers model takes features of pictures that are already encoded."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A loaded model with its tokenizer and picture reader."""

    model: Any
    """A transformers `…ForConditionalGeneration`."""
    chat: Chat
    pictures: PictureReader
    merge: int
    """Patches per side that become one token."""
    vision_attention: str
    """How the vision tower computes attention within pictures and windows, in words."""
    row_attention: str
    """How the language model computes attention within rows of segments, in words."""

    @property
    def family(self) -> Family:
        """The description of its model family."""
        return self.chat.family

    @property
    def attention(self) -> str:
        """How attention is computed, for the log: a line for the tower, and one for the language model."""
        return f"vision attention: {self.vision_attention}\nrow attention: {self.row_attention}"

    @property
    def device(self) -> "torch.device":
        """Where the weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device


def load_chat(name: str) -> Chat:
    """The tokenizer of a folder or a hub name.

    Raises:
        DataError: If it cannot be loaded, belongs to another model, or the model's type has no family.
    """
    return _chat(name, _config(name))


@uncollected()
@without_optimizers()
def _chat(name: str, config: Any) -> Chat:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        chat = Chat(tokenizer, family_of(config.model_type, name))
    except (OSError, ValueError) as error:
        raise unloadable(name, error) from error
    rows, image_id = config.get_text_config().vocab_size, getattr(config, "image_token_id", chat.image_id)
    if chat.image_id != image_id or len(tokenizer) > rows:
        raise DataError(
            f"the tokenizer is another model's: it has {len(tokenizer)} tokens, with a picture token of "
            f"{chat.image_id}; config.json allows at most {rows}, with a picture token of {image_id}",
            where=name,
            fix="put the model's own tokenizer files into the folder",
        )
    return chat


def load_reader(name: str, budget: PixelBudget) -> tuple[Chat, PictureReader]:
    """The tokenizer and picture reader for a model, without its weights.

    Raises:
        DataError: If either cannot be loaded.
    """
    chat = load_chat(name)
    try:
        return chat, PictureReader(chat.family.processor(_image_processor(name)), budget)
    except (OSError, ValueError) as error:
        raise unloadable(name, error) from error


def load_policy(
    name: str,
    *,
    budget: PixelBudget,
    dtype: Dtype,
    device: "torch.device",
    weights: bool = True,
    computes: "torch.device | None" = None,
) -> Policy:
    """Load a model of one of the families from a folder or by hub name.

    The image processor is loaded directly, not through `AutoProcessor`, which needs torchvision for videos
    that are not used here.

    Args:
        name: The folder or hub name.
        budget: Pixel budget of the largest pictures.
        dtype: Type of the weights.
        device: Target device.
        weights: False: none are read, and the model is on `meta`, with only names, types and shapes.
        computes: The device that it will run on, if the weights do not stay on `device`.

    Raises:
        DataError: If the folder is incomplete, holds another model's weights, or the family is unknown.
        RunFailed: If the installed transformers is too old.
    """
    import torch

    from vtune.models.fused import use_fused_modules
    from vtune.models.heap import use_huge_pages
    from vtune.models.row_attention import place_row_attention
    from vtune.models.varlen import place_vision_attention

    config = _config(name)
    family = family_of(config.model_type, name)
    kind = getattr(torch, dtype)
    if (computes or device).type == "cpu":
        use_huge_pages()
    try:
        processor = _image_processor(name)
        model: Any = _with_weights(name, kind) if weights else _skeleton(config, dtype=kind)
    except (OSError, ValueError) as error:
        raise unloadable(name, error) from error
    _check_sees(model)
    if family.fused:
        use_fused_modules(model)
    return Policy(
        model=model.to(device) if weights else model,
        chat=_chat(name, config),
        pictures=PictureReader(family.processor(processor), budget),
        merge=shape_of(config.to_dict()).merge,
        vision_attention=place_vision_attention(model, family, computes or device),
        row_attention=place_row_attention(model, computes or device),
    )


def _check_sees(model: Any) -> None:
    """Before 5.18, transformers takes the features for an unknown option and silently drops them.

    Raises:
        RunFailed: If the model would be trained without its pictures.
    """
    if ENCODED not in signature(model.model.forward).parameters:
        import transformers

        raise RunFailed(
            f"{type(model).__name__} of transformers {transformers.__version__} does not take features of "
            f"pictures ({ENCODED}): the model would see none",
            fix="pip install 'transformers>=5.18'; a family of your own: let its forward take them",
        )


def _with_weights(name: str, kind: "torch.dtype") -> Any:
    """The model of a folder or a hub name, with every weight read from its files.

    Raises:
        DataError: If a file is damaged, or lacks a weight that the configuration requires: transformers would
            initialise it at random and go on.
    """
    from safetensors import SafetensorError

    with uncollected():
        from transformers import AutoModelForImageTextToText

    load: Any = AutoModelForImageTextToText.from_pretrained
    try:
        model, found = load(
            name, dtype=kind, trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except SafetensorError as error:
        raise DataError(
            f"a file of weights is damaged: {error}",
            where=", ".join(damaged(Path(name))) or name,
            fix="copy or download it again: it was cut short",
        ) from error
    if lacking := sorted(found["missing_keys"]):
        raise DataError(
            f"the files hold no weights for {brief(', '.join(lacking), most=200)}",
            where=name,
            fix="restore the folder: a file was written in part, or its config.json is another model's",
        )
    for weight, there, wanted in sorted(found["mismatched_keys"]):
        raise DataError(
            f"{weight} has the shape {tuple(there)} in the files, and {tuple(wanted)} by config.json",
            where=name,
            fix="put weights and config.json of one model into the folder",
        )
    return model


def damaged(folder: Path) -> list[str]:
    """The weight files in a folder that cannot be read."""
    from safetensors import SafetensorError, safe_open

    found = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            safe_open(path, framework="pt")
        except SafetensorError:
            found.append(str(path))
    return found


def load_skeleton(name: str) -> Any:
    """The model of a folder or a hub name without its weights, for names and sizes of its modules.

    Raises:
        DataError: If the folder is incomplete or the family is unknown.
    """
    return _skeleton(_config(name))


@uncollected()
@without_optimizers()
def _config(name: str) -> Any:
    from transformers import AutoConfig

    quiet()
    check_local(name)
    try:
        # Otherwise the user is asked whether to run code that comes with a model; no family here needs any.
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise unloadable(name, error) from error
    family_of(config.model_type, name)
    return config


def _skeleton(config: Any, **kinds: "torch.dtype") -> Any:
    import torch
    from transformers import AutoModelForImageTextToText

    make: Any = AutoModelForImageTextToText.from_config
    with torch.device("meta"):
        return make(config, **kinds)


def plain_shapes(policy: Policy) -> "list[tuple[str, torch.dtype, tuple[int, ...]]]":
    """(name, type, shape) of every weight that a checkpoint of the policy has, in the model's order.

    From its configuration alone, so it does not matter what splits, wraps or empties the parameters.
    """
    (dtype,) = {parameter.dtype for parameter in policy.model.parameters()}
    plain = _skeleton(policy.model.config)
    return [(name, dtype, tuple(parameter.shape)) for name, parameter in plain.named_parameters()]


def policy_logprobs(logits: "torch.Tensor", chat: Chat) -> "torch.Tensor":
    """Log-probabilities (nats, float32) over tokens that may be sampled, same shape as `logits` (..., V).

    Banned tokens, and columns that only pad the matrix, get no probability mass; rollout and training both
    use this function, so that they mean the same distribution.
    """
    import torch

    # Added, not masked: a bias costs a tenth of a mask.
    bias = _bans(chat.banned_ids, len(chat.tokenizer), logits.shape[-1], logits.device)
    return torch.log_softmax(logits.float() + bias, dim=-1)


@functools.lru_cache(maxsize=8)
def _bans(ids: tuple[int, ...], size: int, columns: int, device: "torch.device") -> "torch.Tensor":
    """The bias added to the logits: -inf for banned tokens, else 0: float32, (columns,)."""
    import torch

    with torch.inference_mode(mode=False):  # it is shared by rollouts and training
        bias = torch.zeros(columns, device=device)
        bias[list(ids)] = -torch.inf
        bias[size:] = -torch.inf
    return bias


def save_policy(
    model: Any,
    source: str,
    folder: Path,
    *,
    state_dict: dict[str, Any] | None = None,
    one_file: bool = False,
) -> None:
    """Write a plain Hugging Face folder: weights and config, tokenizer and processor from `source`.

    Args:
        model: The model to write.
        source: Folder or hub name of the original model.
        folder: The target folder.
        state_dict: Weights to write instead of the model's own.
        one_file: Whether they are written to one file, whatever its size.
    """
    from transformers import AutoTokenizer
    from transformers.utils.hub import cached_file

    quiet()
    without_gpu()
    size = {"max_shard_size": "1000TB"} if one_file else {}
    with without_mlflow():  # transformers checks whether DeepSpeed has wrapped the model
        model.save_pretrained(folder, state_dict=state_dict, **size)
    for weights in folder.glob("*.safetensors"):
        open_to_others(weights)
    AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(folder)
    _image_processor(source).save_pretrained(folder)
    # For vLLM and a stock AutoProcessor; the classes that would write these files need torchvision.
    for extra in ("processor_config.json", "video_preprocessor_config.json"):
        given = cached_file(source, extra, _raise_exceptions_for_missing_entries=False)
        if given is not None:
            (folder / extra).write_bytes(Path(given).read_bytes())


def stored_names(model: Any) -> dict[str, str] | None:
    """The name of each parameter in a file; None if several are stored as one, or one as several.

    A model that was read from a file gets that file's names.
    """
    import torch
    from transformers.core_model_loading import revert_weight_conversion

    marks = {name: torch.empty(0, device="meta") for name, _ in model.named_parameters()}
    names = {id(mark): name for name, mark in marks.items()}
    try:
        stored = revert_weight_conversion(model, dict(marks))
    except (RuntimeError, ValueError, IndexError):
        return None  # tensors on `meta` have no values to split or join
    if len(stored) != len(marks) or any(id(mark) not in names for mark in stored.values()):
        return None
    return {names[id(mark)]: name for name, mark in stored.items()}


@uncollected()
@without_optimizers()
def _image_processor(name: str) -> Any:
    from transformers import AutoImageProcessor

    load: Any = AutoImageProcessor.from_pretrained
    # By default it would use torchvision where that is installed, which resizes to different values: a
    # picture, and every number after it, would depend on what else is installed.
    return load(name, backend="pil")
