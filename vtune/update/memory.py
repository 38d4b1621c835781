"""Estimates the memory of training on one GPU, by part: arithmetic on sizes, nothing is allocated.

Figures are bytes. What autograd keeps for a layer was determined from the tensors that it saves (transformers
5, scaled-dot-product attention); tests compare it with a real model.
"""

from dataclasses import dataclass, field

from vtune.models.families.shape import Shape

ADAM = 8
"""Bytes of AdamW's two moments per trained parameter, float32."""
MASTER = 4
"""Bytes per trained parameter of DeepSpeed's float32 copy, which it keeps for float32 weights as well."""
BUCKET = 500_000_000
"""DeepSpeed's `reduce_bucket_size`: the number of gradients reduced at once."""
LIVE = 1_000_000_000
"""DeepSpeed's `stage3_max_live_parameters`: the number of weights that ZeRO-3 may hold gathered."""
LOGIT_BYTES = 14
"""Per token and vocabulary entry while scoring: logits, their float32 and masked copies, log-probabilities.
In the backward pass, gradients replace the copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one process trains on, and how."""

    gpus: int
    dtype_bytes: int
    """2 for bfloat16, 4 for float32."""
    zero_stage: int
    tokens: int
    """Tokens in the largest micro-batch; for a row shared by several GPUs, the tokens on one GPU."""
    patches: int
    """Patches of that micro-batch's distinct pictures that are encoded on this GPU."""
    shown: int | None = None
    """Patches of all its distinct pictures; None: the same number."""
    scored: int
    """Tokens whose logits exist at the same time."""
    copied: float = 0.0
    """Keys and values copied for the tokens that attend to them, relative to those of the row."""
    checkpointing: bool
    """Layers keep only their input, and are recomputed in the backward pass."""
    frozen: tuple[str, ...] = ()
    """Parts of the model that are not trained."""
    reference: bool = False
    """Whether there is a second, frozen copy of the model for a KL term."""
    lora_rank: int = 0
    """0 trains the weights themselves."""
    lora_targets: tuple[str, ...] = ()
    """Names of the linear layers that get adapters."""
    overlap_comm: bool = False
    """Gradients are reduced while the rest of the backward pass is computed."""
    offload: frozenset[str] = field(default_factory=frozenset)
    """`optimizer`, `params`: kept in host memory instead."""


def trained(shape: Shape, load: Load) -> int:
    """Parameters that the optimiser changes."""
    if load.lora_rank:
        return sum(
            depth * load.lora_rank * (a + b)
            for part, depth, linears in _adaptable(shape)
            for name, (a, b) in linears.items()
            if part not in load.frozen and name in load.lora_targets
        )
    return sum(count for part, count in shape.parameters.items() if part not in load.frozen)


def learning(shape: Shape, load: Load) -> list[str]:
    """The parts in which something is trained; with adapters, those that have one."""
    if load.lora_rank:
        reached = [part for part, _, linears in _adaptable(shape) if set(linears) & set(load.lora_targets)]
        return [part for part in reached if part not in load.frozen]
    return [part for part in shape.parameters if part not in load.frozen]


def _adaptable(shape: Shape) -> list[tuple[str, int, dict[str, tuple[int, int]]]]:
    """Parts that can have adapters: each with its number of layers, and the linear maps of one layer."""
    return [("vision", shape.v_depth, shape.v_linears), ("language", shape.layers, shape.linears)]


def resident(shape: Shape, load: Load) -> dict[str, float]:
    """Bytes that stay allocated from step to step: weights, optimiser, reference."""
    learnt = trained(shape, load)
    weights = (shape.total + (learnt if load.lora_rank else 0)) * load.dtype_bytes
    if load.zero_stage == 3:
        weights = 0 if "params" in load.offload else weights // load.gpus
    parts = {
        "weights": float(weights),
        "optimizer": 0.0 if "optimizer" in load.offload else learnt * (ADAM + MASTER) / load.gpus,
    }
    if load.reference:
        parts["KL reference"] = float(shape.total * load.dtype_bytes)
        if load.zero_stage == 3:
            parts["KL reference"] /= load.gpus
    return parts


def gradients(shape: Shape, load: Load) -> dict[str, float]:
    """Bytes of gradients and of DeepSpeed's buffers around them, at the end of a backward pass."""
    learnt = trained(shape, load)
    share = load.gpus if load.zero_stage >= 2 else 1
    # Sharded gradients are accumulated in float32.
    each = 4 if load.zero_stage >= 2 else load.dtype_bytes
    parts = {"gradients": learnt * each / share}
    # One bucket is filled while the other is reduced.
    buckets = 2 if load.overlap_comm and load.zero_stage == 2 else 1
    parts["buffers"] = float(buckets * min(learnt, BUCKET) * load.dtype_bytes)
    if load.zero_stage == 3:
        parts["buffers"] += min(shape.total, LIVE) * load.dtype_bytes
    return parts


def backward(shape: Shape, load: Load) -> dict[str, float]:
    """Peak bytes of the forward and backward pass of the largest micro-batch."""
    b = load.dtype_bytes
    language = load.tokens * b * (shape.kept(b) + load.copied * 2 * shape.key)
    # In the backward pass: gradients of a layer's widest map and of its input.
    working: float = load.tokens * b * (3 * shape.intermediate + 2 * shape.hidden)
    vision_learns = "vision" in learning(shape, load)
    tower = load.patches * b * shape.v_kept(b)
    tower_working = load.patches * b * (3 * shape.v_intermediate + 2 * shape.v_hidden)
    if load.checkpointing:
        kept: float = load.tokens * b * shape.layers * shape.hidden
        seen = load.patches * b * shape.v_depth * shape.v_hidden
        # Only one layer is fully materialised at a time: of the language model, or later of the tower.
        working = max(working + language, tower_working + tower if vision_learns else 0)
    else:
        kept = language * shape.layers
        seen = tower * shape.v_depth
    # Logits come in chunks. Each chunk's gradient covers the whole output head, and autograd adds it to the
    # previous sum, giving a third copy. Layers run later and reuse that memory.
    learns = not load.lora_rank and "language" not in load.frozen
    head = 3.0 * shape.vocab * shape.hidden * b if learns and load.tokens > load.scored else 0.0
    logits = float(min(load.scored, load.tokens) * shape.vocab * LOGIT_BYTES)
    # All pictures of a row are held as levels, an eighth of their float32 patches. Trained parts keep their
    # inputs: the tower its patches, the connector what it computes from the tower's last layer.
    shown = load.patches if load.shown is None else load.shown
    ends: float = shown * shape.patch_values / shape.temporal
    if vision_learns:
        ends += load.patches * shape.patch_values * b
    if vision_learns or not (load.lora_rank or "connector" in load.frozen):
        ends += load.patches * b * shape.v_merging
    return {
        "activations": kept + load.tokens * b * 3.0 * shape.hidden,
        "pictures": (seen if vision_learns else 0.0) + ends,
        "logits": max(logits, head),
        "one layer at work": max(0.0, working - max(logits, head)),
    }


def stepping(shape: Shape, load: Load) -> dict[str, float]:
    """Bytes that the optimiser's step needs besides resident memory and gradients."""
    if "optimizer" in load.offload:
        return {}
    return {"float32 gradients": 4.0 * trained(shape, load) / load.gpus}


def on_host(shape: Shape, load: Load) -> float:
    """Bytes of host memory, over all processes."""
    learnt = trained(shape, load)
    total = learnt * (ADAM + MASTER + load.dtype_bytes) if "optimizer" in load.offload else 0
    if "params" in load.offload and load.zero_stage == 3:
        total += shape.total * load.dtype_bytes
    return float(total)


def on_disk(shape: Shape, load: Load) -> float:
    """Bytes of a checkpoint: the plain weights, any adapters, and DeepSpeed's state beside them."""
    adapters = trained(shape, load) if load.lora_rank else 0
    return (shape.total + adapters) * load.dtype_bytes + state(shape, load)


def state(shape: Shape, load: Load) -> float:
    """Bytes of DeepSpeed's part of a checkpoint: the weights that are trained and the optimiser state."""
    return float(trained(shape, load) * (load.dtype_bytes + ADAM + MASTER))


def kv_token(shape: Shape, dtype_bytes: int) -> int:
    """Bytes of one token's keys and values in all layers."""
    return 2 * shape.layers * shape.key * dtype_bytes


def prefill_token(shape: Shape, dtype_bytes: int) -> int:
    """Bytes per token while a prompt is read without gradient."""
    return (3 * shape.intermediate + 4 * shape.hidden) * dtype_bytes
