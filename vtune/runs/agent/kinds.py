"""The kinds of engines, by their names in recipes and commands; none is imported here."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from vtune.errors import MissingExtra, RecipeError

if TYPE_CHECKING:
    from vtune.models.families.shape import Shape

Kind = Literal["transformers", "vllm", "openai", "scripted"]
"""`openai`: an endpoint has the weights; `scripted`: a file of replies (`vtune.runs.agent.served`)."""


def check_vllm() -> None:
    """Check that vLLM is installed.

    Raises:
        MissingExtra: If it is not.
    """
    if find_spec("vllm") is None:
        raise MissingExtra("vllm is not installed", fix="pip install 'vtune[vllm]'")


def check_temperature(
    temperature: float, *, key: str = "rollout.temperature", where: str = "", remedy: str = "set 0 or 1"
) -> None:
    """Check that vLLM can return the policy's log-probabilities at a temperature.

    Args:
        temperature: The sampling temperature.
        key: Its name in the message.
        where: The place that sets it.
        remedy: What to change.

    Raises:
        RecipeError: If it cannot.
    """
    if temperature not in (0.0, 1.0):
        raise RecipeError(
            f"{key} is {temperature}",
            where=where,
            fix=f"{remedy}: vLLM's log-probabilities are those of the tempered distribution that it "
            "samples from",
        )


def check_devices(gpus: int) -> None:
    """Check that this machine has enough GPUs to share a model.

    Raises:
        RecipeError: If it does not.
    """
    import torch

    if gpus > 1 and torch.cuda.device_count() < gpus:
        raise RecipeError(
            f"rollout.tensor_parallel is {gpus}, and this machine has {torch.cuda.device_count()} GPUs",
            fix="set it to 1, or run where there are as many",
        )


def check_tensor_parallel(gpus: int, shape: "Shape | None", *, kind: str) -> None:
    """Check that this many GPUs can share a model.

    Args:
        gpus: `rollout.tensor_parallel`.
        shape: Shape of the model; None if unknown.
        kind: The engine.

    Raises:
        RecipeError: If some dimension of the model cannot be split, or the engine uses one GPU.
    """
    if gpus == 1:
        return
    if kind != "vllm":
        raise RecipeError(
            f"rollout.tensor_parallel is {gpus}, but {kind} does not generate on several GPUs",
            fix="set rollout.engine to vllm (`vtune eval --vllm`), or tensor_parallel to 1",
        )
    if shape is None:
        return
    wrong = [
        f"{count} {what}"
        for what, count in (("attention heads", shape.heads), ("intermediate units", shape.intermediate))
        if count % gpus
    ]
    if shape.kv_heads % gpus and gpus % shape.kv_heads:
        wrong.append(f"{shape.kv_heads} key heads")
    if wrong:
        raise RecipeError(
            f"rollout.tensor_parallel {gpus} does not divide the model's {' and '.join(wrong)}",
            fix="take a power of two that does, e.g. 2 or 4",
        )
