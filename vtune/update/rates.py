"""Machine speeds: published peaks, the fraction that a run can expect, and measurements."""

import re
from dataclasses import dataclass

from vtune.errors import RecipeError

TRAIN_SHARE = 0.35
"""Share of the peak reached in a training pass. Ours: public reports of dense models range from 0.3 to
0.5."""
PREFILL_SHARE = 0.4
"""Share of the peak reached while prompts are read. Ours."""
BANDWIDTH_SHARE = 0.6
"""Share of the memory bandwidth reached while tokens are generated. Ours."""
LAYER_SECONDS = 0.0015
"""Minimum time of one layer for one token of every row, without CUDA graphs. Measured: 4 layers of a tiny
model on a CPU take 6 ms, at 32 rows."""


@dataclass(frozen=True, slots=True)
class Device:
    """The speed and memory of one GPU, or one CPU core."""

    name: str
    memory_gb: float
    flops: float
    """Per second; on a GPU, dense bfloat16."""
    bytes_per_second: float
    """Memory bandwidth."""
    source: str


GPUS = (
    Device("RTX 4090", 24, 165e12, 1.008e12, "NVIDIA Ada whitepaper"),
    Device("RTX 5090", 32, 209.5e12, 1.792e12, "NVIDIA RTX Blackwell whitepaper"),
    Device("A100 40GB", 40, 312e12, 1.555e12, "NVIDIA A100 data sheet"),
    Device("L40S", 48, 362e12, 0.864e12, "NVIDIA L40S data sheet"),
    Device("RTX A6000", 48, 154.8e12, 0.768e12, "NVIDIA Ampere GA102 whitepaper"),
    Device("A100", 80, 312e12, 2.039e12, "NVIDIA A100 data sheet"),
    Device("A800", 80, 312e12, 2.039e12, "as the A100: its chip, slower links"),
    Device("H100", 80, 989e12, 3.35e12, "NVIDIA H100 SXM data sheet"),
    Device("H800", 80, 989e12, 3.35e12, "as the H100: its chip, slower links"),
    Device("H800 PCIe", 80, 756e12, 2.0e12, "as the H100 PCIe: its chip, slower links"),
    Device("H100 PCIe", 80, 756e12, 2.0e12, "NVIDIA H100 PCIe data sheet"),
    Device("H100 NVL", 94, 835e12, 3.9e12, "NVIDIA H100 NVL data sheet"),
    Device("H20", 96, 148e12, 4.0e12, "published specifications"),
    Device("H200", 141, 989e12, 4.8e12, "NVIDIA H200 SXM data sheet"),
    Device("H200 NVL", 141, 835e12, 4.8e12, "NVIDIA H200 NVL data sheet"),
    Device("B200", 180, 2250e12, 8.0e12, "NVIDIA B200 data sheet"),
)
_BOARDS = ("PCIe", "NVL")
"""Suffixes of a chip's name for cards that run it slower; the driver's name includes them."""
_SUFFIX = r"(?=(?:SXM\d?|PCIE|NVL)?(?![A-Z\d]))"
"""What may follow a chip's name without a space: `H100NVL`; an `H100X` is a different card."""
_OTHERS = re.compile(r"Laptop|\d090 D\b|GB200|\bMIG\b", re.IGNORECASE)
"""Marks of GPU names, or of slices of a GPU, whose peak differs from that of the chip they mention."""
CORE = Device("CPU core", 0, 55e9, 10e9, "measured: float32 training of a tiny model on a Zen 4 core")


def device_like(memory_gb: float) -> Device:
    """The GPU whose memory size is nearest; if two are, the faster."""
    return min(GPUS, key=lambda gpu: (abs(gpu.memory_gb - memory_gb), -gpu.flops))


def _word(gpu: Device) -> str:
    """The part common to all names of a chip: `A100`, `4090`."""
    return gpu.name.split()[-1 if "RTX" in gpu.name else 0]


def device_called(name: str) -> Device:
    """The GPU that a name refers to, e.g. `a100`, `A100-SXM4-40GB`, `4090`; of several, the one with the most
    memory.

    Raises:
        RecipeError: If no GPU is known by that name, or none of that name with the given memory.
    """
    size = re.search(r"(\d+) ?GB\b", name, re.IGNORECASE)
    found = device_named(name.upper(), float(size[1]) if size else 1e6)
    # A driver's GH200 computes like an H200, but someone who plans for one has different memory.
    named = found is not None and re.search(rf"(?<![A-Z])(?:RTX)?{_word(found)}", name, re.IGNORECASE)
    if found is None or not named or (size and found.memory_gb != float(size[1])):
        known = ", ".join(gpu.name for gpu in GPUS)
        raise RecipeError(
            f"no GPU is known as {name!r}", where="--gpu", fix=f"take one of {known}; or --gpu-memory GB"
        )
    return found


def device_named(name: str, memory_gb: float) -> Device | None:
    """The GPU that a driver's name refers to, e.g. `NVIDIA H100 80GB HBM3`; None if it is not known.

    Of GPUs that differ only in memory, it is the one whose memory is nearest: drivers write `A100-SXM4-80GB`,
    `A100-PCIE-40GB` and `A100 80GB PCIe`. An `RTX A1000` is not an A100, and an `H100 PCIe` is not an H100
    SXM, whose peak is a third higher.
    """
    if _OTHERS.search(name):
        return None
    found = [gpu for gpu in GPUS if re.search(rf"{_word(gpu)}{_SUFFIX}", name)]
    boards = {gpu: board for gpu in found if (board := gpu.name.split()[-1]) in _BOARDS}
    same = [gpu for gpu, board in boards.items() if board.lower() in name.lower()]
    fitting = same or [gpu for gpu in found if gpu not in boards]
    return min(fitting, key=lambda gpu: abs(gpu.memory_gb - memory_gb), default=None)
