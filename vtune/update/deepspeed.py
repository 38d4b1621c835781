"""DeepSpeed trains: the only file that knows it."""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vtune.errors import RunFailed
from vtune.models.policy import Policy, load_policy
from vtune.update.batch import Item, micro_batch, micro_batches, stand_in
from vtune.update.forward import PolicyForward, TokenStats, checkpoint_activations
from vtune.update.loss import kl_k3, policy_loss
from vtune.update.ranks import Ranks
from vtune.update.recipe import PolicyLoss, Update
from vtune.update.schedule import learning_rate_at


@dataclass(frozen=True, slots=True)
class StepStats:
    """One update, over all processes."""

    loss: float
    """Mean over the counted tokens of all processes."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    tokens: int
    """Counted tokens."""
    entropy: float
    """Mean, nats."""
    kl: float | None
    """Mean estimate against the starting weights, nats; None without a reference."""
    clip_share: float | None
    """Share of tokens whose objective the clip decided; None in supervised training."""
    mismatch: float | None
    """Largest |log-probability now - when drawn|; on the first update of a step it is numerical noise."""
    mismatch_mean: float | None
    """Mean of the same, nats."""
    mismatch_kl: float | None
    """Mean estimate of KL(weights that drew || weights now), nats."""
    truncated_share: float | None
    """Share of tokens whose importance weight was truncated."""


_SUMS = ("loss", "entropy", "kl", "clipped", "truncated", "mismatch", "mismatch_kl")
"""What an update sums over tokens."""


def start(ranks: Ranks) -> None:
    """Join the process group; a process without a launcher forms one of its own."""
    import deepspeed

    if torch.distributed.is_initialized():
        return
    # The shared-memory op would be compiled at first use (a minute, and a compiler); gloo does without.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    if "MASTER_ADDR" not in os.environ:
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
        }
    backend = "nccl" if ranks.device.type == "cuda" else "gloo"
    deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, verbose=False)


class Trainer:
    """Holds the model, its optimiser and, where a KL is asked for, the frozen starting weights.

    Every process gives its own share of an update's items; the loss is the mean over the counted
    tokens of all of them, so that it does not depend on how many processes there are.

    Raises:
        RunFailed: If freezing did not do what the recipe asks, or a loss is not a number.
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
        self._stand_in = stand_in(policy.chat, policy.pictures)
        self.trainable = freeze(policy.model, recipe.freeze)
        self._reference: PolicyForward | None = None
        if objective is not None and objective.kl_weight > 0:
            frozen = load_policy(
                reference, budget=policy.pictures.budget, dtype=recipe.dtype, device=policy.device
            ).model.requires_grad_(False)
            self._reference = PolicyForward(frozen.eval(), policy.chat)
        if recipe.activation_checkpointing:
            checkpoint_activations(policy.model)
        self._module = module = PolicyForward(policy.model, policy.chat)
        parameters = [p for p in module.parameters() if p.requires_grad]
        if sum(p.numel() for p in parameters) != sum(self.trainable.values()):
            raise RunFailed("the optimiser would train more or less than update.freeze leaves")
        optimizer = torch.optim.AdamW(
            parameters,
            lr=recipe.learning_rate,
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        self._engine, *_ = deepspeed.initialize(
            model=module,
            model_parameters=parameters,
            optimizer=optimizer,
            config=self._config(),
            dist_init_required=False,
        )

    def _config(self) -> dict[str, Any]:
        recipe = self._recipe
        return {
            # Micro-batches have a size in tokens, of which DeepSpeed need not know.
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            # An update ends when `step` is called, after as many micro-batches as it has.
            "managed_gradient_accumulation": False,
            "gradient_clipping": recipe.grad_clip,
            "steps_per_print": 10**9,
            "bf16": {"enabled": recipe.dtype == "bfloat16"},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {"stage": recipe.zero_stage, "overlap_comm": False},
        }

    def step(self, items: Sequence[Item]) -> StepStats | None:
        """One update from this process's items; an empty share still takes part.

        Returns:
            None, and no update, where no process has a token to learn from.
        """
        engine, ranks = self._engine, self._ranks
        done = engine.global_steps
        rate = learning_rate_at(done, self._recipe, steps=self._steps)
        for group in engine.optimizer.param_groups:
            group["lr"] = rate
        engine.train()
        total = sum(ranks.gather(sum(item.counted for item in items)))
        if total == 0:
            return None
        sums = dict.fromkeys(_SUMS, 0.0)
        mismatch = 0.0
        micros = micro_batches(items, self._recipe.micro_tokens, image_id=self._policy.chat.image_id)
        chunks = ranks.gather([self._module.chunks(sum(i.counted for i in micro)) for micro in micros])
        for number in range(max(map(len, chunks))):
            most = max(one[number] for one in chunks if number < len(one))
            micro = micros[number] if number < len(micros) else []
            loss, part, worst = self._forward(micro, chunks=most)
            if not torch.isfinite(loss):
                raise RunFailed(
                    f"the loss of update {done} is {loss.item()}",
                    fix="start a new run from its last checkpoint with a lower update.learning_rate",
                )
            # DeepSpeed averages over processes; the token mean is over all of them together.
            engine.backward(loss * (ranks.world / total), scale_wrt_gas=False)
            mismatch = max(mismatch, worst)
            for name, value in part.items():
                sums[name] += value
        engine.step()
        everyone = ranks.gather(sums)
        mean = {name: sum(one[name] for one in everyone) / total for name in sums}
        learns = self._objective is not None
        return StepStats(
            loss=mean["loss"],
            grad_norm=float(engine.get_global_grad_norm() or 0.0),
            learning_rate=rate,
            tokens=total,
            entropy=mean["entropy"],
            kl=mean["kl"] if self._reference is not None else None,
            clip_share=mean["clipped"] if learns else None,
            mismatch=max(ranks.gather(mismatch)) if learns else None,
            mismatch_mean=mean["mismatch"] if learns else None,
            mismatch_kl=mean["mismatch_kl"] if learns else None,
            truncated_share=mean["truncated"] if learns else None,
        )

    def _forward(self, micro: Sequence[Item], *, chunks: int) -> tuple[torch.Tensor, dict[str, float], float]:
        """Summed loss of a micro-batch, its sums for the record, and the largest train/rollout mismatch."""
        # Processes reduce in step only if each backward of each of them reaches every parameter.
        if not any(item.images for item in micro):
            micro = [*micro, self._stand_in]
        batch = micro_batch(micro, self._policy)
        given = (batch.packed, batch.predicting, batch.targets, chunks)
        stats: TokenStats = self._engine(*given)
        sums = {"entropy": float(stats.entropy.sum())}
        mismatch = 0.0
        if self._objective is None:
            loss = -stats.logprobs.sum()
        else:
            now, old = stats.logprobs.detach(), batch.old_logprobs
            apart = (now - old).abs()
            mismatch = float(apart.max()) if len(apart) else 0.0
            terms = policy_loss(
                stats.logprobs,
                old,
                batch.advantages,
                batch.moved,
                clip_low=self._objective.clip_low,
                clip_high=self._objective.clip_high,
                importance_cap=self._objective.importance_cap,
            )
            loss = terms.loss.sum()
            sums |= {
                "clipped": float(terms.clipped.sum()),
                "truncated": float(terms.truncated.sum()),
                "mismatch": float(apart.sum()),
                "mismatch_kl": float(kl_k3(old, now).sum()),
            }
            if self._reference is not None:
                with torch.no_grad():
                    reference = self._reference(*given).logprobs
                divergence = kl_k3(stats.logprobs, reference).sum()
                loss = loss + self._objective.kl_weight * divergence
                sums["kl"] = float(divergence.detach())
        sums["loss"] = float(loss.detach())
        return loss, sums, mismatch

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The policy's weights by their names in a checkpoint, each whole; every process takes part."""
        for name, parameter in self._policy.model.named_parameters():
            yield name, parameter.detach()

    def save(self, folder: Path, state: dict[str, Any]) -> None:
        """Optimiser state and `state` to `folder`; every process takes part."""
        self._engine.save_checkpoint(str(folder), tag="state", client_state=state)

    def load(self, folder: Path) -> dict[str, Any]:
        """Take up weights and optimiser state, in place; returns the `state` that was saved with them."""
        if not (folder / "state").is_dir():
            raise RunFailed(
                f"{folder} holds no DeepSpeed state", fix="remove the folder to resume from an older one"
            )
        _, state = self._engine.load_checkpoint(str(folder), tag="state")
        return dict(state)


def freeze(model: Any, parts: Sequence[str]) -> dict[str, int]:
    """Freeze parts of a Qwen-VL model and prove it; returns the trainable parameters of each part.

    Raises:
        RunFailed: If a frozen part still has trainable parameters, or nothing is left to train.
    """
    counts = {"vision": 0, "connector": 0, "language": 0}
    left = dict(counts)
    for name, parameter in model.named_parameters():
        part = "language"
        if ".visual." in name or name.startswith("visual."):
            part = "connector" if "merger" in name else "vision"
        parameter.requires_grad_(part not in parts)
        counts[part] += parameter.numel()
        left[part] += parameter.numel() * parameter.requires_grad
    for part in parts:
        if counts[part] == 0 or left[part]:
            raise RunFailed(
                f"freezing {part} had no effect ({counts[part]} parameters, {left[part]} still trainable)",
                fix="remove it from update.freeze, or name the model's family",
            )
    if not sum(left.values()):
        raise RunFailed("update.freeze leaves nothing to train")
    return left


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
