"""The checks on GPUs: their order, their time limits, and what they return."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["passed", "failed", "broken", "late", "skipped"]
"""failed: a bar is not met. broken: the check itself crashed. late: it hit its time limit."""

MINUTES = 25.0
"""Time limit for all one-GPU checks together; the two-GPU checks are a separate run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check, which runs in a separate process."""

    name: str
    about: str
    """What it shows."""
    entry: str
    """`module:function` in this package; it takes a `Place` and returns `Found`."""
    seconds: float
    """Time limit, after which its processes are ended."""
    gpus: int = 1
    vllm: bool = False
    """Whether it needs vLLM."""
    rehearsed: bool = True
    """Whether it can be rehearsed on a CPU."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A number that has to stay within bounds."""

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the value is within its bounds; NaN is not."""
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result that a check returns."""

    bars: Sequence[Bar]
    """At least one: a check without a bar checks nothing."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """For information only; nothing depends on them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a check works."""

    folder: Path
    """The check's own folder; shared models are in `models` beside it."""
    tiny: bool
    """Whether this is a rehearsal with a tiny model, possibly on a CPU."""

    @property
    def models(self) -> Path:
        """The folder of models shared by all checks."""
        return self.folder.parent / "models"


CHECKS: Sequence[Check] = (
    Check(
        name="hand-over",
        about="handles to weights, pickled, in a buffer of the largest tensor, into a vLLM that slept",
        entry="hand_over:check",
        seconds=320,
        vllm=True,
    ),
    Check(
        name="interrupt",
        about="weights that change under running conversations",
        entry="interrupt:check",
        seconds=170,
        vllm=True,
    ),
    Check(
        name="policy",
        about="log-probabilities when drawn and in training, transformers engine, float32 and bfloat16",
        entry="policy:check",
        seconds=60,
    ),
    Check(
        name="varlen",
        about="attention over all windows, and all segments of a row, in one call against one for each",
        entry="varlen:check",
        seconds=45,
    ),
    *(
        Check(
            name=f"step {name.rpartition('-')[2]}",
            about=f"`vtune rl` at the size of {name}: tokens a second, MFU, memory against plan, mismatch",
            entry="steps:check",
            seconds=seconds,
            given={"name": name},
        )
        for name, seconds in (("Qwen2.5-VL-3B", 180), ("Qwen2.5-VL-7B", 220), ("Qwen3-VL-8B", 220))
    ),
    Check(
        name="learns",
        about="a model of 114 million parameters learns the lens puzzles",
        entry="learns:check",
        seconds=285,
    ),
    Check(
        name="ranks",
        about="two ranks, each with its own vLLM on its own GPU; stopped and resumed",
        entry="ranks:check",
        seconds=300,
        gpus=2,
        vllm=True,
    ),
    Check(
        name="tensor_parallel",
        about="two ranks that share a vLLM on both GPUs (rollout.tensor_parallel)",
        entry="ranks:check_tensor_parallel",
        seconds=300,
        gpus=2,
        vllm=True,
        rehearsed=False,
    ),
    Check(
        name="shared_rows",
        about="two ranks that compute each row together, weights split (update.sequence_parallel, ZeRO-3)",
        entry="ranks:check_shared_rows",
        seconds=300,
        gpus=2,
        rehearsed=False,
    ),
    Check(
        name="server",
        about="weights by NCCL to a vLLM server on the second GPU, at a routable address",
        entry="server:check",
        seconds=300,
        gpus=2,
        vllm=True,
        rehearsed=False,
    ),
    Check(
        name="visible",
        about="CUDA_VISIBLE_DEVICES=1: the process takes the second GPU and leaves the first alone",
        entry="ranks:check_visible",
        seconds=120,
        gpus=2,
        rehearsed=False,
    ),
)


def chosen(gpus: int, only: Sequence[str] = ()) -> list[Check]:
    """The checks for this number of GPUs, in order; those for two GPUs are a separate run.

    Raises:
        ValueError: If there is no such check.
    """
    found = [check for check in CHECKS if check.gpus == gpus]
    if unknown := set(only) - {check.name for check in found}:
        raise ValueError(f"no check of {gpus} GPU(s) is called {', '.join(sorted(unknown))}")
    return [check for check in found if not only or check.name in only]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a check."""

    check: Check
    verdict: Verdict
    seconds: float = 0.0
    why: str = ""
    """The reason for any verdict except `passed`."""
    found: Found | None = None

    def as_json(self) -> dict[str, Any]:
        """The outcome as it appears in the JSON document."""
        found = self.found
        return {
            "name": self.check.name,
            "about": self.check.about,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 1),
            "limit": self.check.seconds,
            "why": self.why,
            "bars": [asdict(bar) | {"kept": bar.kept} for bar in found.bars] if found else [],
            "figures": dict(found.figures) if found else {},
        }


def judged(
    check: Check, *, code: int | None, said: Mapping[str, Any] | None, tail: str, seconds: float
) -> Result:
    """The result of a check whose process has ended.

    Args:
        check: The check that ran.
        code: Exit status; None: it was ended at its time limit.
        said: What it returned; None: nothing.
        tail: The end of its output.
        seconds: How long it took.
    """
    if code is None:
        return Result(
            check=check, verdict="late", seconds=seconds, why=f"after {check.seconds:.0f} s: {tail}"
        )
    if code != 0 or said is None or not said["bars"]:
        why = f"exit status {code}: {tail}" if code else f"it held nothing: {tail}"
        return Result(check=check, verdict="broken", seconds=seconds, why=why)
    found = Found(bars=[Bar(**bar) for bar in said["bars"]], figures=said["figures"])
    broken = [bar for bar in found.bars if not bar.kept]
    if not broken:
        return Result(check=check, verdict="passed", seconds=seconds, found=found)
    why = "; ".join(words(bar) for bar in broken)
    return Result(check=check, verdict="failed", seconds=seconds, why=why, found=found)


def words(bar: Bar) -> str:
    """A bar in readable form."""
    bounds = [
        f"{word} {bound:.4g}"
        for word, bound in (("at most", bar.at_most), ("at least", bar.at_least))
        if bound is not None
    ]
    return f"{bar.what} {bar.value:.4g} ({', '.join(bounds)})"


def skipped(check: Check, *, gpus: int, vllm: bool, left: float, tiny: bool) -> str:
    """Why a check is skipped; empty if it is not.

    Args:
        check: The check.
        gpus: Number of GPUs of this machine.
        vllm: Whether vLLM can be imported.
        left: Seconds left of the total time.
        tiny: Whether it is a rehearsal, which needs no GPU.
    """
    if gpus < check.gpus and not (tiny and check.rehearsed):
        return f"needs {check.gpus} GPU(s), and there are {gpus}"
    if check.vllm and not vllm:
        return "needs vLLM, which is not installed here"
    if left < check.seconds:
        return f"may take {check.seconds:.0f} s, and {max(0.0, left):.0f} s are left"
    return ""
