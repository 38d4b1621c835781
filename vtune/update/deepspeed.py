"""Training with DeepSpeed: besides `starting.py`, the only file that knows it."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from vtune.errors import DataError, RunFailed
from vtune.models.families.family import Part
from vtune.models.policy import Policy
from vtune.update.balance import balanced
from vtune.update.batch import Item, Read, dummy_item, micro_batch
from vtune.update.device_memory import within_memory
from vtune.update.flops import UpdateFlops
from vtune.update.forward import PolicyForward, TokenStats, checkpoint_activations
from vtune.update.frozen import checksum_of_frozen, frozen_left_out, take_trained
from vtune.update.gathered import without_weights
from vtune.update.held_files import HeldFile, holding
from vtune.update.loading import split_weights, starting_policy
from vtune.update.lora import Unit, WithoutAdapters, adapter_units, add_adapters, units
from vtune.update.losses import PolicyLoss
from vtune.update.losses.aggregation import denominator
from vtune.update.objective import MicroLoss, micro_loss
from vtune.update.optimizer import HeldAdamW, group_norms, layer_groups
from vtune.update.parts import fingerprints, freeze
from vtune.update.ranks import Ranks
from vtune.update.recipe import LoRA, Update
from vtune.update.schedule import learning_rate_at
from vtune.update.sequence import sequence_group, shared_items
from vtune.update.shares import in_step
from vtune.update.stats import StepStats
from vtune.update.zero import buckets, config_of, forget_gradients, outside_zero, with_buffer

MAX_SKIPPED = 10
"""Limit on consecutive skipped updates; ours."""
FROZEN = "checksum of frozen weights"
"""Key in a checkpoint's state, which omits frozen weights: they are in the model that the recipe names."""


class Trainer:
    """Holds the model, its optimiser and, if there is a KL term, the frozen starting weights.

    Every process passes its own share of an update's items; the loss is the mean over the counted tokens (or
    the sequences, as `loss.aggregation` says) of all processes, so it depends neither on the number of
    processes nor on the size of micro-batches.

    Raises:
        RunFailed: If freezing did not do what the recipe asks, or a loss is NaN or infinite.
    """

    def __init__(
        self,
        policy: Policy,
        recipe: Update,
        ranks: Ranks,
        *,
        steps: int,
        objective: PolicyLoss | None,
        reference: str,
    ) -> None:
        import deepspeed

        self._policy = policy
        self._recipe = recipe
        self._ranks = ranks
        self._steps = steps
        self._objective = objective
        self._group = sequence_group(ranks, recipe.sequence_parallel)
        self._settings = config_of(recipe, pinned=ranks.device.type == "cuda")
        self._dummy = dummy_item(policy.chat, policy.pictures)
        self._skipped = 0
        reference_too = objective is not None and objective.kl_weight > 0
        self._layout = {"image_id": policy.chat.image_id, "merge": policy.merge}
        self.trainable = freeze(policy.model, recipe.freeze, policy.family)
        if recipe.zero_stage == 3:
            self._split(policy.model)
        plain = recipe.lora is None and recipe.zero_stage < 3
        self.rollouts = policy if plain else replace(policy, model=without_weights(policy.model))
        """The policy for rollouts and export; it has weights only inside `gathered`."""
        if recipe.lora is not None:
            self.trainable = add_adapters(policy.model, recipe.lora, recipe.freeze)
        self._flops = UpdateFlops(policy, recipe, self.trainable, reference=reference_too)
        if recipe.activation_checkpointing:
            checkpoint_activations(policy.model)
        self._module = module = PolicyForward(policy.model, policy.chat, self._group)
        self._reference: Callable[..., TokenStats] | None = None
        if reference_too:
            self._reference = self._frozen(reference) if recipe.lora is None else WithoutAdapters(module)
        parameters = [p for p in module.parameters() if p.requires_grad]
        if sum(getattr(p, "ds_numel", p.numel()) for p in parameters) != sum(self.trainable.values()):
            raise RunFailed("the optimiser would not train exactly what update.freeze leaves")
        optimizer = HeldAdamW(
            layer_groups(module, policy.family),
            self._holds,
            lr=recipe.learning_rate,
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
        )
        self._optimizer = optimizer
        self._engine, *_ = deepspeed.initialize(
            model=module,
            model_parameters=parameters,
            optimizer=optimizer,
            config=with_buffer(self._settings, sum(self.trainable.values())),
            dist_init_required=False,
        )
        if recipe.zero_stage == 3:
            outside_zero(policy.model.lm_head)
        # After DeepSpeed has laid out the weights.
        self._frozen_at = fingerprints(policy.model, recipe.freeze, policy.family)

    def _frozen(self, name: str) -> Callable[..., TokenStats]:
        """The starting weights; sharded among processes if the policy's weights are."""
        import deepspeed

        policy = self._policy
        found = starting_policy(name, policy.pictures.budget, self._recipe, self._ranks)
        if self._recipe.zero_stage == 3:
            self._split(found.model)
        module = PolicyForward(found.model.requires_grad_(False).eval(), policy.chat, self._group)
        if self._recipe.zero_stage < 3:
            return module
        engine: Any
        engine, *_ = deepspeed.initialize(model=module, config=self._settings, dist_init_required=False)
        outside_zero(found.model.lm_head)
        engine.eval()
        split: Callable[..., TokenStats] = engine
        return split

    def _split(self, model: Any) -> None:
        """Shard a model's weights before any GPU has to hold all of them."""
        import deepspeed

        to_host = {"remote_device": "cpu", "pin_memory": self._ranks.device.type == "cuda"}
        placed: dict[str, Any] = to_host if "params" in self._recipe.offload else {}

        def split(parameter: torch.nn.Parameter) -> None:
            one = torch.nn.ParameterList([parameter])
            deepspeed.zero.Init(module=one, config_dict_or_path=self._settings, **placed)

        split_weights(model, self._ranks, split)

    def _holds(self) -> bool:
        """Whether the optimiser skips this step; DeepSpeed has computed the gradient norm by now."""
        return not self._small_enough(self._engine.optimizer._global_grad_norm)

    def _small_enough(self, norm: float) -> bool:
        bound = self._recipe.skip_grad_norm
        return math.isfinite(norm) and (bound is None or norm <= bound)

    def step(self, items: Sequence[Item]) -> StepStats | None:
        """One update from this process's items; an empty share still takes part.

        Returns:
            None, without an update, if no process has a token to learn from.

        Raises:
            RunFailed: If the loss or gradient is not finite, or a GPU runs out of memory.
        """
        with within_memory(self._recipe):
            return self._step(items)

    def _step(self, items: Sequence[Item]) -> StepStats | None:
        engine, ranks = self._engine, self._ranks
        done = engine.global_steps
        rate = learning_rate_at(done, self._recipe, steps=self._steps)
        for group in engine.optimizer.param_groups:
            group["lr"] = rate
        engine.train()
        items = balanced(items, ranks, **self._layout, cost=self._flops)
        counts = [item.counted for item in items]
        everyone = ranks.gather((sum(counts), sum(count > 0 for count in counts)))
        total, sequences = (sum(one[k] for one in everyone) for k in (0, 1))
        if total == 0:
            return None
        objective = self._objective
        share = denominator(objective.aggregation, tokens=total, sequences=sequences) if objective else total
        sums: dict[str, float] = defaultdict(float)
        mismatch = 0.0
        for micro, read, most in self._micro_batches(items):
            loss, part, worst = self._forward(micro, read, chunks=most)
            if self._recipe.skip_grad_norm is None and not torch.isfinite(loss):
                raise RunFailed(
                    f"the loss of update {done} is {loss.item()}",
                    fix=_calmer(done),
                )
            # DeepSpeed averages over processes; our mean is over the tokens of all of them together.
            engine.backward(loss * (ranks.world / share), scale_wrt_gas=False)
            mismatch = max(mismatch, worst)
            for name, value in part.items():
                sums[name] += value
        self._optimizer.squares.clear()
        engine.step()
        norm = float(engine.get_global_grad_norm())
        skipped = self._note_skipped(norm, done)
        if skipped:
            forget_gradients(engine.optimizer)
        gathered = ranks.gather((dict(sums), self._optimizer.measured()))
        # All processes that share rows agree on this.
        found = [one for one, _ in gathered[:: self._recipe.sequence_parallel]]
        mean = {name: sum(one[name] for one in found) / total for name in sums}
        return StepStats(
            loss=sum(one["loss"] for one in found) / share,
            grad_norm=norm,
            skipped=skipped,
            learning_rate=rate,
            tokens=total,
            flops=sum(one["flops"] for one in found),
            entropy=mean["entropy"],
            kl=mean.get("kl"),
            clip_share=mean.get("clipped"),
            mismatch=max(ranks.gather(mismatch)) if objective else None,
            mismatch_mean=mean.get("mismatch"),
            mismatch_kl=mean.get("mismatch_kl"),
            truncated_share=mean.get("truncated"),
            grad_norms=group_norms(norm, [measured for _, measured in gathered]),
        )

    def _micro_batches(self, items: Sequence[Item]) -> Iterator[tuple[Sequence[Item], Read, int]]:
        """See `in_step`; processes that share rows get the same, proportionally larger micro-batches."""
        return in_step(
            shared_items(items, self._group),
            self._policy,
            self._ranks,
            tokens=self._recipe.micro_tokens * self._recipe.sequence_parallel,
            dummy=self._dummy,
            chunks_of=self._module.chunks,
        )

    def _forward(self, micro: Sequence[Item], read: Read, *, chunks: int) -> MicroLoss:
        """The loss of this process's micro-batch."""
        batch = micro_batch(micro, self._policy, read)
        given = (batch.packed, batch.predicting, batch.targets, chunks)
        stats: TokenStats = self._engine(*given)
        starting = None if self._reference is None else partial(self._reference, *given)
        found = micro_loss(self._objective, stats, batch, starting)
        flops = self._flops.of(batch.packed, scored=len(batch.targets))
        return found._replace(sums=found.sums | {"flops": flops})

    def _note_skipped(self, norm: float, update: int) -> bool:
        """Record whether an update was skipped; raises if too many are skipped in a row."""
        skipped = not self._small_enough(norm)
        if skipped and self._recipe.skip_grad_norm is None:
            raise RunFailed(
                f"the gradient of update {update} is not a number",
                fix=_calmer(update),
            )
        self._skipped = self._skipped + 1 if skipped else 0
        if self._skipped > MAX_SKIPPED:
            raise RunFailed(
                f"{self._skipped} updates in a row were skipped, the last with a gradient norm of {norm:g}",
                fix="lower update.learning_rate, or raise update.skip_grad_norm",
            )
        return skipped

    def check_frozen(self) -> tuple[Part, ...]:
        """Check that the frozen parts still have the weights with which this process started.

        Returns:
            The frozen parts.

        Raises:
            RunFailed: If a frozen weight has changed.
        """
        now = fingerprints(self._policy.model, self._recipe.freeze, self._policy.family)
        if moved := [part for part, found in self._frozen_at.items() if found != now[part]]:
            raise RunFailed(
                f"{' and '.join(moved)} should be frozen and has changed",
                fix="keep no checkpoint of this run; report it",
            )
        return self._recipe.freeze

    @property
    def lora(self) -> LoRA | None:
        """The adapters being trained, None if the weights themselves are."""
        return self._recipe.lora

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every weight once, under its name in the plain model, gathered and with adapters merged.

        Under ZeRO-3 one bucket at a time is gathered, so all processes must iterate together and to the end,
        and a tensor is valid only until the next one is requested.
        """
        return self._passed(units(self._policy.model))

    def adapters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The matrices of every adapter once, under their names in a peft file; gathered like `weights`."""
        return self._passed(adapter_units(self._policy.model))

    def _passed(self, found: Iterator[Unit]) -> Iterator[tuple[str, torch.Tensor]]:
        import deepspeed

        split = self._recipe.zero_stage == 3
        for bucket in buckets(found):
            needed = [parameter for unit in bucket for parameter in unit.needs]
            with deepspeed.zero.GatheredParameters(needed, enabled=split):
                yield from chain.from_iterable(unit.weights() for unit in bucket)

    @contextmanager
    def gathered(
        self, device: torch.device | None = None, *, keep: Callable[[str], object] = bool
    ) -> Iterator[Policy]:
        """`rollouts` with the current weights, gathered and merged; all processes enter together.

        Args:
            device: Target device; default: the model's. Weights that need no gathering are not moved.
            keep: Whether this process needs a weight, by its name; it takes part in gathering all.
        """
        if self.rollouts is self._policy:
            yield self.rollouts
            return
        body = dict(self.rollouts.model.named_parameters())
        empty = {name: parameter.data for name, parameter in body.items()}
        split = self._recipe.zero_stage == 3
        try:
            for name, tensor in self.weights():
                if keep(name):
                    held = tensor.detach()
                    there = held.to(device or self._policy.device)
                    # Clone: the gathered buffer is released when the next bucket is gathered.
                    body[name].data = (
                        there.clone() if split and there.data_ptr() == held.data_ptr() else there
                    )
            yield self.rollouts
        finally:
            for name, parameter in body.items():
                parameter.data = empty[name]

    def save(self, folder: Path, state: dict[str, Any], *, held: list[HeldFile] | None = None) -> None:
        """Save the optimiser state of the trained weights, and `state`, to `folder`; all processes take part.

        Args:
            folder: The target folder.
            state: Saved along with it.
            held: Collects the large files, to be written later; None: they are written now.
        """
        # Wait here first: DeepSpeed waits inside with the shorter timeout of a collective.
        self._ranks.wait()
        with nullcontext() if held is None else holding(self._engine, held), frozen_left_out(self._module):
            self._engine.save_checkpoint(
                str(folder),
                tag="state",
                client_state={**state, FROZEN: checksum_of_frozen(self._policy.model)},
                exclude_frozen_parameters=True,
            )

    def load(self, folder: Path) -> dict[str, Any]:
        """Load weights and optimiser state in place; returns the `state` that was saved with them."""
        if not (folder / "state").is_dir():
            raise RunFailed(
                f"{folder} holds no DeepSpeed state", fix="remove the folder to resume from an older one"
            )
        # Checkpoints of an earlier version include the frozen weights, and no checksum of them.
        _, state = self._engine.load_checkpoint(
            str(folder), tag="state", load_module_strict=False, custom_load_fn=take_trained
        )
        self.check_frozen()
        state = dict(state)
        frozen = checksum_of_frozen(self._policy.model)
        if state.pop(FROZEN, frozen) != frozen:
            raise DataError(
                "the weights that are not trained differ from those that the run was started with",
                where=str(folder.parent),
                fix="restore the model that the recipe names",
            )
        return state


def _calmer(update: int) -> str:
    """The remedy if the loss or gradient of an update is not finite."""
    skips = "set update.skip_grad_norm, which skips these updates"
    if update == 0:
        return f"nothing is learnt yet: look at the weights that `model` names and at the data; or {skips}"
    return (
        "start a new run with a lower update.learning_rate, from the last checkpoint where there is one "
        f"(--set model=OUT/checkpoints/newest); or {skips}"
    )
