"""What happens to a run when something around it fails: provokes each outcome of the table in cli/rl.md."""

import math
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from tests.judge.server import serve
from tests.runs.commands import numbers, rl, same_weights, setting, vtune
from vtune.errors import RunFailed
from vtune.runs.agent import prompt_lengths
from vtune.runs.train import learning
from vtune.runs.train.checkpoint_manager import CheckpointManager
from vtune.sandbox import Execution
from vtune.schema.parquet import load_picture, read_samples, write_samples
from vtune.schema.store import sample_store
from vtune.schema.trajectory import Trajectory
from vtune.tools.recoverable_session import RecoverableSession
from vtune.update.batch import Item
from vtune.update.checkpoint import complete, newest_checkpoint
from vtune.update.deepspeed import Trainer
from vtune.update.held_files import HeldFile

pytestmark = pytest.mark.train

ROOM = 1 << 20
"""Maximum file size in bytes, which simulates a nearly full disk."""


@contextmanager
def full_at_the_second_checkpoint() -> Iterator[None]:
    save, written = CheckpointManager.save, []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def save_while_there_is_room(*given: Any, **more: Any) -> None:
        written.append(given)
        if len(written) == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
        save(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointManager, "save", save_while_there_is_room)
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_ends_the_run_and_keeps_the_older_checkpoint(
    schooled: Path, lens: Path, unbroken: Path, tmp_path: Path, background: bool
) -> None:
    run = tmp_path / "run"
    words = rl(schooled.resolve(), lens / "train.parquet", run)
    words += setting(checkpoints__background=background)
    with full_at_the_second_checkpoint():
        ended = vtune(*words)
    assert ended.code == 1, ended.err
    assert "error: the checkpoint of step 4 could not be written" in ended.err
    assert "File too large" in ended.err
    assert "Traceback" not in ended.err
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["newest", "step-000002"]
    assert newest_checkpoint(run / "checkpoints") == run / "checkpoints/step-000002"
    again = vtune(*words, "--resume")
    assert again.code == 0, again.err
    assert same_weights(*(one / "checkpoints/newest" for one in (run, unbroken)))
    assert numbers(run) == numbers(unbroken)


def test_a_run_continues_while_a_checkpoint_is_written(
    schooled: Path, lens: Path, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk so slow that the first one takes until the third step; the run can resume from it."""
    run, learnt = tmp_path / "run", threading.Event()
    step, write_out = Trainer.step, HeldFile.write_out
    there: list[list[str]] = []

    def noted(self: Trainer, items: Any) -> Any:
        found = step(self, items)
        there.append(sorted(path.name for path in (run / "checkpoints").glob("step-*")))
        if len(there) == 3:
            learnt.set()
        return found

    def slow(self: HeldFile) -> None:
        assert learnt.wait(60), "the run waits for the disk"
        write_out(self)

    words = [*rl(schooled.resolve(), lens / "train.parquet", run), *setting(checkpoints__background=True)]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", noted)
        patch.setattr(HeldFile, "write_out", slow)
        ended = vtune(*words)
    assert ended.code == 0, ended.err
    assert there[2] == []
    assert [path.name for path in complete(run / "checkpoints")] == ["step-000002", "step-000004"]
    assert same_weights(*(one / "checkpoints/newest" for one in (run, unbroken)))
    shutil.rmtree(run / "checkpoints/step-000004")
    again = vtune(*words, "--resume")
    assert again.code == 0, again.err
    assert same_weights(*(one / "checkpoints/newest" for one in (run, unbroken)))
    assert numbers(run) == numbers(unbroken)


def poison(monkeypatch: pytest.MonkeyPatch, factors: Mapping[int, float]) -> None:
    """Multiply the losses of these steps by these factors."""
    forward = Trainer._forward

    def wrong(self: Trainer, *given: Any, **named: Any) -> Any:
        loss, *rest = forward(self, *given, **named)
        return loss * factors.get(self._engine.global_steps, 1.0), *rest

    monkeypatch.setattr(Trainer, "_forward", wrong)


def test_an_exploding_update_is_skipped_and_counted_if_the_recipe_says_so(
    schooled: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is NaN, and one that is large."""
    run = tmp_path / "run"
    poison(monkeypatch, {1: math.nan, 2: 1e12})
    ended = vtune(*rl(schooled.resolve(), lens / "train.parquet", run, *setting(update__skip_grad_norm=1e6)))
    assert ended.code == 0, ended.err
    told = numbers(run)
    assert [told[step, "all"]["skipped"] for step in range(4)] == [0, 1, 1, 0]
    assert not any("loss" in told[step, "all"] for step in (1, 2))
    assert math.isfinite(told[3, "all"]["loss"])


def test_by_default_a_nan_loss_ends_the_run(
    schooled: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    poison(monkeypatch, {1: math.nan})
    ended = vtune(*rl(schooled.resolve(), lens / "train.parquet", run, *setting(checkpoints__every=1)))
    assert ended.code == 1
    assert "error: the loss of update 1 is nan" in ended.err
    assert "update.skip_grad_norm" in ended.err
    assert newest_checkpoint(run / "checkpoints") == run / "checkpoints/step-000001"


def test_a_dead_judge_ends_the_run_which_can_resume_with_another(
    schooled: Path, lens: Path, tmp_path: Path
) -> None:
    """Samples without boxes, whose crops a model must judge."""
    steps = 2
    data = lens / "train.parquet"
    boxless = tmp_path / "boxless.parquet"
    bare = []
    for sample in read_samples(data):
        pictures = [
            replace(picture, data=load_picture(picture, data.parent), path=None) for picture in sample.images
        ]
        bare.append(replace(sample, evidence=(), images=tuple(pictures)))
    write_samples(boxless, bare)
    run = tmp_path / "run"

    def words(url: str) -> list[str]:
        judge = {"base_url": url, "model": "judge", "temperature": 0.0, "max_tokens": 8, "concurrency": 2}
        judge |= {"retries": 1, "timeout_s": 5.0, "api_key_env": "null"}
        text = "{" + ", ".join(f"{key}: {value}" for key, value in judge.items()) + "}"
        more = setting(
            reward__judge=text, reward__evidence__search_sources="[lens]", prompts_per_step=6, steps=steps
        )
        return rl(schooled.resolve(), boxless, run, *more)

    with serve("1.0", 500) as judge:
        ended = vtune(*words(judge.endpoint().base_url))
        assert len(judge.requests) > 1
    assert ended.code == 1
    assert "of the trajectories are unscored, the limit is 5.0%" in ended.err
    assert "--resume" in ended.err
    with serve("1.0") as judge:
        again = vtune(*words(judge.endpoint().base_url), "--resume")
    assert again.code == 0, again.err
    assert {step for step, _ in numbers(run)} == set(range(steps))


def test_long_prompts_of_a_large_step_are_refused_only_where_they_must_end_it(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    """2 of the first 32 are more than 5 %, but 2 of a step's 64 are not."""
    data = tmp_path / "long.parquet"
    (sample,) = islice(read_samples(lens / "train.parquet"), 1)
    picture = replace(sample.images[0], data=load_picture(sample.images[0], lens), path=None)
    (*before, last) = sample.prompt
    prompts = [sample.prompt, (*before, replace(last, content=last.content + " please" * 400))]
    rows = [replace(sample, id=f"{number}", images=(picture,)) for number in range(64)]
    write_samples(data, rows)
    first = [sample_store([data]).shuffled(number, seed=0)[0].id for number in range(32)]
    for many, code in ((2, 0), (4, 2)):
        write_samples(data, [replace(row, prompt=prompts[row.id in first[:many]]) for row in rows])
        ended = vtune(*rl(tiny.resolve(), data, tmp_path / "run", "--dry-run"), *setting(prompts_per_step=64))
        assert ended.code == code, ended.err
    assert "4 of the first 32 prompts leave no room" in ended.err


def test_a_template_that_opens_thoughts_itself_gives_a_warning(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    """Replies then begin without the tag that the format reward looks for."""
    model = tmp_path / "model"
    shutil.copytree(tiny, model)
    template = model / "chat_template.jinja"
    words = [*rl(model, lens / "train.parquet", tmp_path / "run", "--dry-run")]
    assert "opens <think>" not in vtune(*words).err
    opening = "{% if add_generation_prompt %}{{ '<think>\\n' }}{% endif %}"
    template.write_text(template.read_text(encoding="utf-8") + opening, encoding="utf-8")
    ended = vtune(*words)
    assert ended.code == 0, ended.err
    assert "opens <think> itself" in ended.err
    assert "opens <think>" not in vtune(*words, *setting(reward__format=0.0)).err


def test_a_too_long_prompt_stops_the_run_which_can_resume_without_it(
    schooled: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run = tmp_path / "long.parquet", tmp_path / "run"
    first, second = (
        replace(
            sample,
            images=tuple(replace(one, data=load_picture(one, lens), path=None) for one in sample.images),
        )
        for sample in islice(read_samples(lens / "train.parquet"), 2)
    )
    (*before, last) = first.prompt
    asked = replace(last, content=last.content + " please" * 400)
    write_samples(data, [replace(first, prompt=(*before, asked)), second])
    words = rl(schooled.resolve(), data, run, *setting(steps=1))
    for more in ((), ("--dry-run",)):
        refused = vtune(*words, *more)
        assert refused.code == 2
        assert "1 of the first 2 prompts leave no room for a reply within" in refused.err
        assert f"sample {first.id!r}, whose prompt has" in refused.err
    assert not run.exists()
    monkeypatch.setattr(prompt_lengths, "MEASURED", 0)
    ended = vtune(*words)
    assert ended.code == 1
    assert f"sample {first.id!r}: the prompt has" in ended.err
    assert "reward.max_unscored" in ended.err
    monkeypatch.undo()
    again = vtune(*words, *setting(reward__max_unscored=0.5), "--resume")
    assert again.code == 0, again.err
    assert numbers(run)[0, "all"]["unscored"] == 0.5


def test_too_many_unscored_midway_lose_no_training(
    schooled: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, counted = tmp_path / "run", count(1)

    def check(drawn: Any, most: float) -> None:
        if next(counted) == 3:
            raise RunFailed("the judge is gone", fix="--resume")

    monkeypatch.setattr("vtune.runs.train.loop.check_unscored", check)
    words = rl(schooled.resolve(), lens / "train.parquet", run)
    words += setting(checkpoints__every=10, checkpoints__background=True)
    ended = vtune(*words)
    assert ended.code == 1
    assert "the judge is gone" in ended.err
    assert [folder.name for folder in complete(run / "checkpoints")] == ["step-000002"]
    assert {step for step, _ in numbers(run)} == {0, 1}


def test_an_engine_with_other_weights_ends_the_run(
    schooled: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    of_trajectory = learning.item_of

    def otherwise(trajectory: Trajectory, *, updated: bool) -> Item:
        found = of_trajectory(trajectory, updated=updated)
        apart = 0.6 if trajectory.policy_version == 2 else 0.4
        return replace(found, old_logprobs=tuple(value - apart for value in found.old_logprobs))

    monkeypatch.setattr(learning, "item_of", otherwise)
    words = rl(schooled.resolve(), lens / "train.parquet", run)
    ended = vtune(*words, *setting(checkpoints__every=1))
    assert ended.code == 1
    assert "the engine (transformers) and the trainer differ in log-probability by 0.6" in ended.err
    assert "try another rollout.engine" in ended.err
    # What was trained on such tokens is not kept.
    assert [folder.name for folder in complete(run / "checkpoints")][-1] == "step-000002"
    assert numbers(run)[2, "all"]["mismatch_mean"] == pytest.approx(0.6, abs=0.01)


def test_a_sandbox_that_dies_is_replaced_and_the_run_learns_the_same(
    schooled: Path, lens: Path, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    go, calls = RecoverableSession.run, []

    async def run_or_lose(self: RecoverableSession, code: str) -> Execution:
        calls.append(code)
        # Some calls are refused before they reach a process.
        if len(calls) % 7 == 0:  # of 8 per step: no call is lost three times, even on a busy machine
            with suppress(ProcessLookupError):  # no new process was needed since the last one
                os.kill(self._sandbox.zygote_pid, signal.SIGKILL)
            time.sleep(0.2)
        return await go(self, code)

    monkeypatch.setattr(RecoverableSession, "run", run_or_lose)
    ended = vtune(*rl(schooled.resolve(), lens / "train.parquet", run))
    assert ended.code == 0, ended.err
    assert len(calls) > 9
    told, before = numbers(run), numbers(unbroken)
    lost = [row.pop("sessions_lost") for (_, source), row in told.items() if source == "all"]
    assert sum(lost) >= 1  # how many more depends on which calls were waiting when
    assert [row.pop("sessions_lost") for (_, source), row in before.items() if source == "all"] == [0] * 4
    assert told == before
    assert same_weights(*(one / "checkpoints/newest" for one in (run, unbroken)))
