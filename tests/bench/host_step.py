"""Host time of one rank's step at 7B sizes, without the model: now, and at an earlier commit.

    OMP_NUM_THREADS=1 python -m tests.bench.host_step --before COMMIT [--prompts 32]

A step of `vtune rl`: 8 conversations of about 6,000 tokens per picture of 3 megapixels, each with a different
crop of 0.8 made by real sandboxes, scored by boxes, packed in rows of 32 k tokens, written to disk. The
engine returns each turn after a random delay seeded by its key, after preparing the pictures as for vLLM;
forward and backward are left out. Seconds are CPU time over all processes of the run, so that other work on
the machine counts little. Both sides run one after the other in this session.

For the event loop during rollouts and scoring, it reports the longest time in which no other task got a turn:
by the clock, the same without waiting for a core, and in CPU seconds. Below that it lists where the loop was
in blocks over 50 ms.
"""

import argparse
import asyncio
import inspect
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GROUP, WIDTH, HEIGHT, CROP = 8, 2000, 1500, (1000, 800)
TURN_TOKENS = 500
DRAWS = (2.0, 10.0)
"""Minimum and maximum seconds to generate a turn."""
BEAT, BAR = 0.002, 0.05
"""Seconds between checks of the event loop, and the threshold above which a block is reported."""
RECIPE = {
    "steps": 1, "group_size": GROUP, "images.max_pixels": 3_211_264, "rollout.max_new_tokens": 1000,
    "rollout.max_tokens": 28_672, "rollout.max_batch": 256, "sandbox.memory_mb": 2048, "sandbox.seconds": 120,
    "update.micro_tokens": 32_768, "update.threads": 1, "checkpoints.every": 100, "trajectories_every": 1,
}  # fmt: skip


def photo(seed: int) -> bytes:
    """Soft noise, as JPEG."""
    import numpy as np
    from PIL import Image

    small = np.random.default_rng(seed).integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(small).resize((WIDTH, HEIGHT)).save(out, "JPEG", quality=90)
    return out.getvalue()


def spoken(chat: Any, key: tuple[int, ...]) -> str:
    """A turn: the first looks at a place chosen by the key, the next answers."""
    thought = "<think>The sign stands left of the tree. "
    said = " I look once more, and count."
    thought += said * (TURN_TOKENS // len(chat.words(said)))
    if key[-1]:
        return f"{thought}</think>\n<answer>{7 + key[-2] % 2}</answer>"
    chance = random.Random(repr(key))
    x, y = chance.randrange(WIDTH - CROP[0]), chance.randrange(HEIGHT - CROP[1])
    box = (x, y, x + CROP[0], y + CROP[1])
    return f'{thought}\n<code>\n```python\nimage.crop({box}).save("look.png")\n```\n</code>'


def without_model() -> None:
    """Replace generation by fixed turns and forward passes by nothing; the rest of the run is real."""
    import torch

    try:
        from tests.rollout.scripted import ScriptedEngine
    except ModuleNotFoundError:  # `--before` an older commit, which has it elsewhere
        from vtune.rollout.scripted import ScriptedEngine  # type: ignore[import-not-found, no-redef]
    from vtune.rollout.engine import Completion, Request
    from vtune.rollout.submission import Answer, Kept, Submissions, label_of
    from vtune.rollout.transformers import TransformersEngine
    from vtune.update.forward import PolicyForward, TokenStats

    TransformersEngine.cohorts = 1

    async def generate(self: Any, request: Request) -> Completion:
        policy = self._policy
        if not hasattr(self, "kept"):
            self.kept = Kept(1 << 30, lambda made: made.width * made.height * 3)
            self.submissions = Submissions(policy)
        for pixels in request.pixels:
            if hasattr(policy.pictures, "beside"):
                await self.kept.of(pixels, lambda one: policy.pictures.beside(policy.pictures.shown, one))
            elif self.kept.get(pixels) is None:
                self.kept.put(pixels, policy.pictures.shown(pixels))
        self.submissions.prompt(request)
        wanted = self.submissions.sampling(request)
        turn = ScriptedEngine(policy.chat, [spoken(policy.chat, request.key)])
        await asyncio.sleep(random.Random(wanted["seed"]).uniform(*DRAWS))
        drawn = await turn.generate(request)
        end = "stop" if drawn.finish in ("stop", "end") else "length"
        stop = policy.chat.end_id if drawn.finish == "end" else "stopped"
        spans = [(label_of(0), len(drawn.token_ids))]
        answer = Answer(list(request.token_ids), drawn.token_ids, drawn.logprobs, end, stop, spans)
        return self.submissions.completion(request, answer)

    def forward(self: Any, packed: Any, predicting: Any, targets: Any, chunks: int) -> TokenStats:
        zero = sum(p.flatten()[0] for p in self.parameters()) * 0.0
        return TokenStats(zero + torch.zeros(len(targets)), torch.zeros(len(targets)))

    TransformersEngine.generate = generate  # type: ignore[method-assign]
    PolicyForward.forward = forward  # type: ignore[method-assign]


@dataclass
class Blocks:
    """How long the event loop was blocked."""

    clock: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    """Wall-clock seconds, without those for which the thread waited for a core."""
    processor: list[float] = field(default_factory=list)
    where: Counter[str] = field(default_factory=Counter)
    """Samples, every 2 ms, of where the loop was during blocks above the threshold."""

    async def beat(self) -> None:
        """Measure until cancelled."""
        line = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        sampler = Sampler(threading.get_ident())

        def now() -> tuple[float, float, float]:
            return time.monotonic(), time.thread_time(), int(line.read_text().split()[1]) / 1e9

        with sampler.looking():
            while True:
                before = now()
                sampler.seen.clear()
                await asyncio.sleep(BEAT)
                clock, processor, waited = (b - a for a, b in zip(before, now(), strict=True))
                self.clock.append(clock - BEAT)
                # The thread may have waited for a core before the beat was due.
                self.running.append(max(0.0, clock - BEAT - waited))
                self.processor.append(processor)
                if self.running[-1] > BAR:
                    self.where.update(sampler.seen)


class Sampler:
    """Samples where a thread is."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self.seen: list[str] = []

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Sample until the end of the block."""
        done = threading.Event()
        looker = threading.Thread(target=self._look, args=(done,))
        looker.start()
        try:
            yield
        finally:
            done.set()
            looker.join()

    def _look(self, done: threading.Event) -> None:
        while not done.wait(BEAT):
            frames = traceback.extract_stack(sys._current_frames()[self._thread])
            ours = [f"{Path(f.filename).stem}.{f.name}:{f.lineno}" for f in frames if "/vtune/" in f.filename]
            self.seen.append(" < ".join(ours[:-4:-1]) or f"{frames[-1].name}")


def spent() -> float:
    """CPU seconds of this process and its descendants, including those that have ended."""
    ticks, children = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        total += ticks.get(process, 0)
        left += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def one_step(recipe: Path, folder: Path) -> dict[str, Any]:
    """Run one step of a checkout and return its measurements."""
    from vtune.config import load_recipe

    try:
        from vtune.runs.train import draw, loop
    except ImportError:
        from vtune.runs import rl_draw as draw
        from vtune.runs import rl_loop as loop
    recipes = loop.RLRecipe
    without_model()
    told: dict[str, Any] = {}
    whole = draw.Drawing.__call__

    async def timed(self: Any, step: int, numbers: range) -> Any:
        await whole(self, step, numbers[:1])  # warm-up for lazy imports
        told["began"], told["cpu"], own = time.monotonic(), spent(), time.process_time()
        blocks = Blocks()
        beating = asyncio.create_task(blocks.beat())
        try:
            found = await whole(self, step, numbers)
        finally:
            beating.cancel()
        told["drawing"], told["own"] = spent() - told["cpu"], time.process_time() - own
        told["conversations"], told["tokens"] = len(found), sum(len(t.token_ids) for t in found)
        failed = [t for t in found if not (len(t.calls) == 1 and t.calls[0].crops and t.reward.total)]
        assert not failed, f"{len(failed)} of {len(found)}, among them {failed[0].calls}, {failed[0].reward}"
        for name in ("clock", "running", "processor"):
            told[name] = sorted(getattr(blocks, name))[-20:]
        told["where"] = blocks.where.most_common(12)
        return found

    draw.Drawing.__call__ = timed
    last = "_recorded" if hasattr(loop._Loop, "_recorded") else "_tell"
    written = getattr(loop._Loop, last)

    def noted() -> None:
        told["step"], told["seconds"] = spent() - told.pop("cpu"), time.monotonic() - told.pop("began")

    def recorded(self: Any, *given: Any) -> Any:
        found = written(self, *given)
        if not inspect.isawaitable(found):
            noted()
            return found
        return after(found)

    async def after(writing: Any) -> Any:
        found = await writing
        noted()
        return found

    setattr(loop._Loop, last, recorded)
    changes = dict(RECIPE, model=folder / "model", data=f"[{folder / 'data.parquet'}]")
    changes["prompts_per_step"] = os.environ["PROMPTS"]
    settings = load_recipe(recipe, recipes, [f"{key}={value}" for key, value in changes.items()])
    loop.run_rl(settings, Path(tempfile.mkdtemp(dir=folder)) / "run", resume=False)
    return told


def prepare(folder: Path, prompts: int) -> None:
    from vtune.data import lens
    from vtune.models.tiny import build_tiny
    from vtune.schema.message import Message, Picture
    from vtune.schema.parquet import write_samples
    from vtune.schema.sample import Evidence, Sample

    build_tiny(folder / "model", lens.corpus(1, seed=0, count=100), seed=0)
    write_samples(
        folder / "data.parquet",
        [
            Sample(
                id=f"signs/{number}",
                source="signs",
                ability="visual_search",
                prompt=(Message("user", "<image>Which digit is on the red sign?", (0,)),),
                images=(Picture(data=photo(number)),),
                ground_truth="7",
                verifier="math",
                tools=("python",),
                evidence=(Evidence("sign", 0, (700.0, 500.0, 1100.0, 900.0)),),
            )
            for number in range(prompts)
        ],
    )


def show(side: str, told: dict[str, Any]) -> None:
    count = told["conversations"]
    print(f"{side}: {count} conversations of {told['tokens'] / count:.0f} tokens")
    print(f"  step {told['step']:.1f} s of a processor, {told['seconds']:.0f} s by the clock; drawing and")
    print(f"  scoring {told['drawing']:.1f} s, of them {told['own']:.1f} in the trainer's process")
    kinds = ("clock", "running", "processor")
    longest = {name: [f"{1000 * s:.0f}" for s in told[name][:-4:-1]] for name in kinds}
    print("  longest blocks, ms: " + ", ".join(f"{name} {' '.join(ms)}" for name, ms in longest.items()))
    for where, number in told["where"]:
        print(f"    {number:5} {where}")


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--before", help="a commit")
    asked.add_argument("--prompts", type=int, default=32)
    asked.add_argument("--step", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.step:
        print(json.dumps(one_step(*given.step)))
        return
    here = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, given.prompts)
        sides = {"now": here}
        if given.before:
            sides = {"before": folder / "before", **sides}
            add = ["git", "worktree", "add", "--detach", str(sides["before"]), given.before]
            subprocess.run(add, cwd=here, check=True, capture_output=True)
        try:
            found = {}
            for side, checkout in sides.items():
                recipe = checkout / "recipes/rl/codev-tiny.yaml"
                done = subprocess.run(
                    [sys.executable, __file__, "--step", str(recipe), str(folder)],
                    env=os.environ | {"PYTHONPATH": str(checkout), "PROMPTS": str(given.prompts)},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                found[side] = json.loads(done.stdout.splitlines()[-1])
                show(side, found[side])
        finally:
            if given.before:
                subprocess.run(
                    ["git", "worktree", "remove", "--force", str(sides["before"])], cwd=here, check=True
                )
    if given.before:
        print(f"before / now, seconds of a processor: {found['before']['step'] / found['now']['step']:.2f}")


if __name__ == "__main__":
    main()
