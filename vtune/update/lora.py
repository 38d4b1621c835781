"""Low-rank adapters (LoRA, Hu et al. 2021), added to a model by peft and merged back arithmetically."""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vtune.errors import RecipeError
from vtune.models.families import family_of_model
from vtune.models.families.family import Part
from vtune.models.families.shape import Shape
from vtune.models.policy import load_skeleton
from vtune.update.recipe import LoRA, Update

ADAPTER = "default"
"""peft's name for the only adapter."""


class Unit(NamedTuple):
    """Parameters that are needed together, and the plain model's weights computed from them."""

    needs: tuple[nn.Parameter, ...]
    names: tuple[str, ...]
    """The names of those weights."""
    weights: Callable[[], list[tuple[str, Tensor]]]


def add_adapters(model: Any, lora: LoRA, frozen: Sequence[Part]) -> dict[str, int]:
    """Freeze all weights and add adapters to the targets outside the frozen parts.

    Returns:
        Number of trainable parameters in each part.

    Raises:
        RecipeError: If a target names no linear layer.
    """
    from peft import LoraConfig, inject_adapter_in_model

    wanted = targets_in(model, lora, frozen)
    # Only the current GPU: for the other GPUs, used by other processes, torch would print a long warning.
    here = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(here):
        # The same random values on every process; the other factor starts at zero, so they have no other
        # effect.
        torch.manual_seed(0)
        inject_adapter_in_model(
            LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=wanted), model
        )
    counts, part_of = {"vision": 0, "connector": 0, "language": 0}, family_of_model(model).part_of
    for name, parameter in model.named_parameters():
        counts[part_of(name)] += parameter.numel() * parameter.requires_grad
    return counts


def targets_in(model: Any, lora: LoRA, frozen: Sequence[Part]) -> list[str]:
    """Names of the linear layers of a model that get adapters.

    Raises:
        RecipeError: If a target matches no layer outside the frozen parts, or one whose weights are tied to
            the input embedding: no plain model can have only one of the two changed.
    """
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    wanted = [name for name in linear if name.rpartition(".")[2] in lora.targets]
    part_of = family_of_model(model).part_of
    wanted = [name for name in wanted if part_of(name) not in frozen]
    reached = {name.rpartition(".")[2] for name in wanted}
    _check_reached(lora, reached, {name.rpartition(".")[2] for name in linear})
    embedding = model.get_input_embeddings().weight
    if tied := [name for name in wanted if model.get_submodule(name).weight is embedding]:
        raise RecipeError(
            f"update.lora.targets: {tied[0]} has the weights of the input embedding, which would not get "
            "what an adapter adds to them",
            fix=f"take {tied[0].rpartition('.')[2]} out of the targets",
        )
    return wanted


def _check_reached(lora: LoRA, reached: Collection[str], there: Collection[str]) -> None:
    """Check that every target names a layer that can have an adapter.

    Args:
        lora: The recipe's section.
        reached: Names of the layers that can have an adapter.
        there: Names of all linear layers, for the error message.

    Raises:
        RecipeError: If a target does not.
    """
    if missing := [target for target in lora.targets if target not in reached]:
        raise RecipeError(
            f"update.lora.targets: no trainable linear layer is called {', '.join(missing)}",
            fix=f"the model's linear layers are {', '.join(sorted(there))}",
        )


def check_targets(model: str, update: Update) -> None:
    """Check that a model has the layers that adapters target, before its weights are loaded.

    Args:
        model: Folder or hub name.
        update: The recipe's `update` section.

    Raises:
        RecipeError: If a target of `update.lora` names no linear layer that can have an adapter.
        DataError: If the model cannot be loaded.
    """
    if update.lora is not None:
        targets_in(load_skeleton(model), update.lora, update.freeze)


def check_alone(model: str, update: Update) -> None:
    """Check that a model's adapters can be sent to vLLM without the model.

    Raises:
        RecipeError: If there are no adapters, or one is outside the language model.
    """
    lora = _adapted(update)
    skeleton = load_skeleton(model)
    part_of = family_of_model(skeleton).part_of
    names = targets_in(skeleton, lora, update.freeze)
    _check_inside([name for name in names if part_of(name) != "language"])


def check_shape(shape: Shape, update: Update, *, alone: bool) -> None:
    """`check_targets`, and with `alone` also `check_alone`, for a model known only by its shape.

    Raises:
        RecipeError: As those functions do.
    """
    if update.lora is None:
        if alone:
            _adapted(update)
        return
    layers, targets = shape.linear_names, {*update.lora.targets}
    reached = {part: names & targets for part, names in layers.items() if part not in update.freeze}
    _check_reached(update.lora, frozenset().union(*reached.values()), frozenset().union(*layers.values()))
    if alone:
        elsewhere = {part: names for part, names in reached.items() if part != "language"}
        _check_inside(sorted(f"{name} ({part})" for part, names in elsewhere.items() for name in names))


def _adapted(update: Update) -> LoRA:
    if update.lora is None:
        raise RecipeError(
            "rollout.adapters is alone, and nothing is adapted: update.lora is null",
            fix="set update.lora, or rollout.adapters to merged",
        )
    return update.lora


def _check_inside(outside: Sequence[str]) -> None:
    """Reject adapters outside the language model, which vLLM does not support."""
    if outside:
        raise RecipeError(
            f"rollout.adapters is alone, but there would be one at {outside[0]}: vLLM takes only those "
            "of the language model",
            fix="add vision and connector to update.freeze, or set rollout.adapters to merged",
        )


class WithoutAdapters:
    """Calls a module as it was before adapters were added: the starting weights, at no cost in memory."""

    def __init__(self, module: nn.Module) -> None:
        from peft.tuners.lora import LoraLayer

        self._module = module
        self._layers = [layer for layer in module.modules() if isinstance(layer, LoraLayer)]

    def __call__(self, *given: Any) -> Any:
        """The module's output for the arguments, with all adapters disabled."""
        for layer in self._layers:
            layer._disable_adapters = True  # `enable_adapters` would also change which weights are trained
        try:
            return self._module(*given)
        finally:
            for layer in self._layers:
                layer._disable_adapters = False


def units(model: nn.Module) -> Iterator[Unit]:
    """Every weight once, adapters merged, under its name in the model without adapters."""
    # A model has adapters only if peft was imported to add them; importing it here would take half a second.
    peft = sys.modules.get("peft.tuners.lora")
    adapted: tuple[type, ...] = (peft.LoraLayer,) if peft is not None else ()
    seen: set[int] = set()
    merged: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if name.startswith(merged):
            continue
        dot = f"{name}." if name else ""
        if isinstance(module, adapted):
            merged = (dot,)
            yield _merged(dot, module)
            continue
        for own, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield _plain(dot + own, parameter)


def adapter_units(model: nn.Module) -> Iterator[Unit]:
    """The two matrices of every adapter, under their names in a peft file."""
    from peft.tuners.lora import LoraLayer

    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            yield _alone(f"base_model.model.{name}", module)


def adapted_layers(model: nn.Module) -> list[str]:
    """Names of the layers that have adapters, as in the plain model."""
    from peft.tuners.lora import LoraLayer

    return [name for name, module in model.named_modules() if isinstance(module, LoraLayer)]


def _alone(name: str, layer: Any) -> Unit:
    down, up = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
    names = (f"{name}.lora_A.weight", f"{name}.lora_B.weight")
    return Unit((down, up), names, lambda: list(zip(names, (down.data, up.data), strict=True)))


def _plain(name: str, parameter: nn.Parameter) -> Unit:
    return Unit((parameter,), (name,), lambda: [(name, parameter.data)])


def _merged(dot: str, layer: Any) -> Unit:
    base, down, up = layer.base_layer, layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight

    def weights() -> list[tuple[str, Tensor]]:
        delta = up.data.float() @ down.data.float() * layer.scaling[ADAPTER]
        found = [(f"{dot}weight", (base.weight.data.float() + delta).to(base.weight.dtype))]
        return found if base.bias is None else [*found, (f"{dot}bias", base.bias.data)]

    names = (f"{dot}weight",) if base.bias is None else (f"{dot}weight", f"{dot}bias")
    return Unit((*base.parameters(), down, up), names, weights)
