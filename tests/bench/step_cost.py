"""CPU cost of the sandbox per step of `codev-tiny`, apart from the time that a step waits for it.

python -m tests.bench.step_cost MODEL DATA    # after `make demo`: runs/demo/sft/checkpoints/newest ...

The same steps run alternately with the sandbox, with tools that crop directly in the trainer ("free"), and
with tools that also cache crops per picture and code ("remembered"), which cost next to nothing.
"""

import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

STEPS, WARM_UP, TURNS = 24, 4, 3


remembered: dict[tuple[bytes, str], object] = {}


class Free:
    """Replaces a session: crops the first picture by the last four numbers in the code."""

    def __init__(self, images: tuple[bytes, ...]) -> None:
        self._images = images

    async def run(self, code: str) -> object:
        from vtune.sandbox import Execution
        from vtune.sandbox.types import ShownCrop

        numbers = [int(float(text)) for text in re.findall(r"\d+\.?\d*", code)[-4:]]
        out = io.BytesIO()
        try:
            picture = Image.open(io.BytesIO(self._images[0]))
            x0, y0, x1, y1 = numbers
            inside = max(x0, 0), max(y0, 0), min(x1, picture.width), min(y1, picture.height)
            picture.crop(inside).save(out, "PNG")
            # Reported as by a session, so that the reward sees the same.
            shown = ShownCrop(bbox=inside, image=0, shown=0, matrix=(1, 0, inside[0], 0, 1, inside[1]))
        except (ValueError, TypeError, IndexError, SystemError) as error:
            return Execution(status="error", error=str(error), seconds=0.001)
        return Execution(
            status="ok", images=(out.getvalue(),), names=("crop.png",), crops=(shown,), seconds=0.001
        )

    async def close(self) -> None:
        """Does nothing: there is nothing to close."""


class Remembering(Free):
    """Like `Free`, with a cache of earlier crops."""

    async def run(self, code: str) -> object:
        key = self._images[0], code
        if key not in remembered:
            remembered[key] = await super().run(code)
        return remembered[key]


KINDS: dict[str, type[Free] | None] = {"free": Free, "remembered": Remembering, "sandbox": None}


def steps(kind: str, model: str, data: str) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        words = ["rl", "--recipe", "codev-tiny", "--out", f"{folder}/run", "--set", f"model={model}"]
        words += ["--set", f"data=[{data}]", "--set", f"steps={STEPS}", "--set", "checkpoints.every=100"]
        subprocess.run([sys.executable, __file__, kind, *words], check=True, capture_output=True)
        lines = [json.loads(line) for line in Path(folder, "run/metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["source"] == "all"][WARM_UP:]


def train(kind: str) -> None:
    from vtune.cli.main import main
    from vtune.tools.recoverable_session import RecoverableSession

    if (tools := KINDS[kind]) is not None:

        async def free(cls: object, sandbox: object, images: tuple[bytes, ...], **_: object) -> Free:
            return tools(images)

        RecoverableSession.open = classmethod(free)  # type: ignore[method-assign,assignment,arg-type]
    main()


def compare(model: str, data: str) -> None:
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS if kind != "sandbox"}
    for _ in range(TURNS):
        found = {kind: steps(kind, model, data) for kind in KINDS}
        for kind, rows in found.items():
            waited = statistics.mean(row["seconds_sandbox"] for row in rows)
            print(f"{kind:10} {_seconds(rows):6.3f} s a step, {waited:.3f} of them waiting for tools")
        for kind, several in ratios.items():
            several.append(_seconds(found["sandbox"]) / _seconds(found[kind]))
    for kind, several in reversed(ratios.items()):
        print(f"sandbox / {kind}: {statistics.median(several):.3f} {[round(ratio, 3) for ratio in several]}")


def _seconds(rows: list[dict[str, float]]) -> float:
    """Mean seconds per step; the mean is fair, as the same trajectories are generated each way."""
    return statistics.mean(row["seconds"] for row in rows)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in KINDS:
        train(sys.argv.pop(1))
    elif len(sys.argv) == 3:
        compare(*sys.argv[1:])
    else:
        sys.exit("usage: python -m tests.bench.step_cost MODEL DATA")
