"""Two ranks on two GPUs, and GPUs that must not be touched."""

from typing import Any

from tests.gpu.checks import Bar, Found, Place
from tests.gpu.models import TOLERANCE, middling, tiny_model
from tests.gpu.running import Memory, rows_of, settings, vtune_apart
from tests.gpu.shared import compared
from vtune.runs.data.lens import make_lens

STEPS = 4
GRADIENTS = 1e-3
"""Largest relative distance of a gradient in float32; on a CPU it is 3e-6, and 1 where one is lost. Ours."""
TAKEN = 1.0
"""A process that uses a GPU takes at least this many GB of it, and fewer on a GPU that it does not use."""


def check(place: Place) -> Found:
    """Each rank's vLLM generates on its own GPU; stopped after two steps, the run resumes."""
    model = tiny_model(place.models / "tiny")
    given = recipe(place, model) | {"rollout.engine": "vllm", "rollout.gpu_memory": 0.3}
    words = ["rl", "--recipe", "codev-tiny", "--out", str(place.folder / "run"), "--gpus", "2"]
    with Memory() as memory:
        vtune_apart([*words, *settings(given | {"steps": 2})])
        vtune_apart([*words, *settings(given), "--resume"])
    return found(place, "float32", memory, both=True)


def check_tensor_parallel(place: Place) -> Found:
    """One vLLM on the GPUs of both ranks."""
    model = middling(place.models / "middling")  # its heads divide by two
    given = recipe(place, model) | {
        "rollout.engine": "vllm",
        "rollout.gpu_memory": 0.3,
        "rollout.tensor_parallel": 2,
        "update.dtype": "bfloat16",
    }
    words = ["rl", "--recipe", "codev-tiny", "--out", str(place.folder / "run"), "--gpus", "2"]
    with Memory() as memory:
        vtune_apart([*words, *settings(given)])
    return found(place, "bfloat16", memory, both=True)


def check_shared_rows(place: Place) -> Found:
    """Both ranks compute each row together, with weights split between them (update.sequence_parallel).

    Before that, log-probabilities and gradients of such rows are those of one GPU.
    """
    model = middling(place.models / "middling")  # its heads divide by two
    given = recipe(place, model) | {
        "update.dtype": "bfloat16",
        "update.sequence_parallel": 2,
        "update.zero_stage": 3,
        "update.overlap_comm": True,
        "update.activation_checkpointing": True,
        "loss.kl_weight": 0.01,
    }
    words = ["rl", "--recipe", "codev-tiny", "--out", str(place.folder / "run"), "--gpus", "2"]
    with Memory() as memory:
        differ = compared(model, place.folder / "apart.json")
        vtune_apart([*words, *settings(given)])
    rest = found(place, "bfloat16", memory, both=True)
    bars = [
        Bar(
            what="log-probabilities, apart from one GPU",
            value=differ["logprobs"],
            at_most=TOLERANCE["float32"],
        ),
        Bar(what="gradients, apart from one GPU", value=differ["gradients"], at_most=GRADIENTS),
    ]
    return Found(bars=[*bars, *rest.bars], figures=rest.figures)


def check_visible(place: Place) -> Found:
    """One rank uses only the second GPU, which it sees as its first."""
    given = recipe(place, tiny_model(place.models / "tiny"))
    words = ["rl", "--recipe", "codev-tiny", "--out", str(place.folder / "run"), "--gpus", "1"]
    before = Memory()
    with before:
        pass
    with Memory() as memory:
        vtune_apart([*words, *settings(given)], CUDA_VISIBLE_DEVICES="1")
    first, second = (after - idle for after, idle in zip(memory.most, before.most, strict=True))
    bars = [
        Bar(what="GB of the first GPU", value=first, at_most=TAKEN / 4),
        Bar(what="GB of the second GPU", value=second, at_least=TAKEN / 4),
    ]
    return Found(bars=[*bars, *found(place, "float32", memory, both=False).bars])


def recipe(place: Place, model: Any) -> dict[str, Any]:
    """A short run of the puzzles."""
    data = place.folder / "data"
    make_lens(data, train=32, heldout=1, traces=1, level=1, guessable=0.0, seed=0)
    return {
        "model": model,
        "data": f"[{data / 'train.parquet'}]",
        "steps": STEPS,
        "prompts_per_step": 4,
        "group_size": 4,
        "update.threads": 1,
        "update.warmup_steps": 0,
        "checkpoints.every": 2,
        "trajectories_every": STEPS,
    }


def found(place: Place, dtype: str, memory: Memory, *, both: bool) -> Found:
    """All steps exist, rollout and training agree, and the right GPUs were used."""
    rows = rows_of(place.folder / "run")
    bars = [
        Bar(what="steps", value=len(rows), at_least=STEPS, at_most=STEPS),
        Bar(what="mismatch", value=max(row["mismatch"] for row in rows), at_most=TOLERANCE[dtype]),
    ]
    if both and memory.most:
        bars.append(Bar(what="GB of the GPU that has less", value=min(memory.most), at_least=TAKEN))
    return Found(bars=bars, figures={"gb": memory.most, "seconds": [row["seconds"] for row in rows]})
