"""Kill processes of training runs at random moments, resume, and compare with an undisturbed run.

python -m tests.bench.soak_kill --kills 20 --processes 2

Every trial is a separate run of ten steps. One of its processes is killed (SIGKILL): the command, its
launcher, a watcher, a rank, or a sandbox process. If that ends the run, it is resumed. At the end its weights
must equal those of the undisturbed run bit for bit, its metrics must have one line per step and be equal, and
its trajectories must hold the same tokens of the same samples, none twice and none missing.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.conftest import build
from tests.runs.commands import numbers, rl, same_weights, setting, sft
from tests.runs.launched import Launched, eventually, steps_done
from vtune.runs.data.lens import make_lens
from vtune.schema.parquet import read_trajectories

STEPS = 10
START = 600.0
"""Seconds that a run may take to start on a busy machine."""


class Soak:
    """A cold-started model, its puzzles, and the undisturbed run, in a folder."""

    def __init__(self, root: Path, *, processes: int) -> None:
        self._root = root
        self._launch = ["--gpus", str(processes)] if processes > 1 else []
        lens = root / "lens"
        make_lens(lens, train=16, heldout=6, traces=32, level=1, guessable=0.0, seed=0)
        tiny = build(root / "tiny", "qwen2_5_vl")
        Launched(sft(tiny, lens / "traces.parquet", root / "sft"), root / "said-sft").expect(0, START)
        self._model = (root / "sft/checkpoints/newest").resolve()
        self._data = lens / "train.parquet"
        began = time.monotonic()
        whole = self._start(root / "whole", "whole")
        eventually(lambda: steps_done(root / "whole") > 0, START)
        self._up = time.monotonic() - began
        eventually(lambda: steps_done(root / "whole") == STEPS, START)
        self._step = (time.monotonic() - began - self._up) / (STEPS - 1)
        whole.expect(0, START)

    def trial(self, name: str, rng: random.Random, kind: str = "") -> str:
        """One run, one kill, and a resume if needed; reports which process was killed and the outcome."""
        run = self._root / name
        started = self._start(run, name)
        step = rng.randrange(-1, STEPS - 1)
        if step < 0:
            time.sleep(rng.uniform(0, self._up))
        else:
            eventually(lambda: steps_done(run) > step or started.process.poll() is not None, START)
            time.sleep(rng.uniform(0, self._step))
        there = started.kinds()
        # Choose the kind first: there are many more sessions than launchers.
        kind = kind or rng.choice(sorted(set(there.values()) or {"command"}))
        victim = rng.choice(
            sorted(pid for pid, found in there.items() if found == kind) or [started.process.pid]
        )
        os.kill(victim, signal.SIGKILL)
        done = steps_done(run)
        code = started.wait(START)
        assert started.gone(30), f"{name}: processes are left over: {started.processes()}"
        if code != 0:
            again = ["--resume"] if (run / "recipe.yaml").exists() else []
            self._start(run, f"{name}-again", *again).expect(0, START)
        self._compare(run)
        return f"{kind} after {done} steps: {'continued' if code == 0 else 'ended and resumed'}"

    def _start(self, run: Path, name: str, *more: str) -> Launched:
        words = rl(self._model, self._data, run, *setting(steps=STEPS), *self._launch, *more)
        return Launched(words, self._root / f"said-{name}")

    def _compare(self, run: Path) -> None:
        whole = self._root / "whole"
        assert same_weights(*(one / "checkpoints/newest" for one in (run, whole))), "other weights"
        assert _told(run) == _told(whole), "other metrics"
        files = [sorted((one / "trajectories").glob("*.parquet")) for one in (run, whole)]
        assert [path.name for path in files[0]] == [path.name for path in files[1]]
        for mine, theirs in zip(*files, strict=True):
            first, second = (list(read_trajectories(path)) for path in (mine, theirs))
            assert [(t.sample_id, t.group, t.rollout, t.token_ids) for t in first] == [
                (t.sample_id, t.group, t.rollout, t.token_ids) for t in second
            ], f"other trajectories in {mine}"


def _told(run: Path) -> dict[tuple[int, str], dict[str, float]]:
    """The metrics without the number of recreated sessions, which the kill itself may change."""
    found = numbers(run)
    assert {step for step, _ in found} == set(range(STEPS))
    return {
        where: {name: value for name, value in row.items() if name != "sessions_lost"}
        for where, row in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kill only processes of this kind")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            soak = Soak(Path(folder), processes=given.processes)
            for number in range(given.kills):
                try:
                    said = soak.trial(f"trial-{number}", rng, given.only)
                    tally["same"] += 1
                except AssertionError as error:
                    said = f"FAILED: {error}"
                    tally["other"] += 1
                print(f"{number + 1}/{given.kills} {said}", flush=True)
        finally:
            for started in Launched.every:
                started.end()
    print(f"{tally['same']} of {given.kills} ended as the unbroken run")
    sys.exit(tally["other"] > 0)


if __name__ == "__main__":
    main()
