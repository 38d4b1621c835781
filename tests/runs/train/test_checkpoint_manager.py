"""Which checkpoints are kept, and which is the best: with hand-written curves, without a model."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from vtune.errors import DataError, RunFailed
from vtune.metrics.log import MetricsLog
from vtune.runs.train.checkpoint_manager import CheckpointManager, _check_intact, position
from vtune.runs.train.loop import _Loop
from vtune.runs.train.record import Record
from vtune.runs.train.stopping import Stopping
from vtune.update.checkpoint import NEWEST, PendingCheckpoint, complete, point
from vtune.update.diverged import Diverged
from vtune.update.held_files import HeldFile
from vtune.update.manifest import MANIFEST
from vtune.update.ranks import Ranks
from vtune.update.recipe import Best, Checkpoints, Keep

ALONE = Ranks(rank=0, world=1, local=0)
BEST = Best(suite="quiz", metric="score", mode="max")


def manager(keep: Keep, out: Path) -> CheckpointManager:
    return CheckpointManager(Checkpoints(every=1, minutes=None, keep=keep), out, ALONE)


def after(curve: dict[int, float], out: Path, keep: Keep, *, every: int = 1) -> tuple[list[int], str | None]:
    """The checkpoints that exist after the last step of a curve, and what `best` points to."""
    checkpoints = manager(keep, out)
    with MetricsLog(out / "metrics.jsonl", first_step=0) as log:
        for step, value in curve.items():
            if step % every == 0:
                pending = PendingCheckpoint(checkpoints.root, step, lambda folder: None, ranks=ALONE)
                pending.finish(keep=keep.newest, spared=checkpoints._spared)
            log.write(step, {"eval/quiz/all": {"score": value}, "eval/quiz/hard": {"score": -value}})
            checkpoints.point()
    steps = [int(folder.name.removeprefix("step-")) for folder in sorted(checkpoints.root.glob("step-*"))]
    link = checkpoints.root / "best"
    return steps, link.resolve().name if link.exists() else None


CURVE = {1: 0.2, 2: 0.6, 3: 0.4, 4: 0.6, 5: 0.1, 6: 0.3}


@pytest.mark.parametrize(
    ("keep", "stay", "best"),
    [
        (Keep(newest=2), [5, 6], None),
        (Keep(newest=2, best=BEST), [2, 5, 6], "step-000002"),  # the earliest of equals
        (Keep(newest=1, best=BEST.model_copy(update={"mode": "min"})), [5, 6], "step-000005"),
        (Keep(newest=1, every=3), [3, 6], None),
        (Keep(newest=1, every=4, best=BEST), [2, 4, 6], "step-000002"),
        (Keep(newest=1, best=BEST.model_copy(update={"suite": "other"})), [6], None),
    ],
)
def test_the_newest_the_best_and_curve_checkpoints_are_kept(
    tmp_path: Path, keep: Keep, stay: list[int], best: str | None
) -> None:
    assert after(CURVE, tmp_path, keep) == (stay, best)


def test_the_best_is_chosen_among_existing_checkpoints(tmp_path: Path) -> None:
    """Weights before training, and between checkpoints, may be better: nobody has them."""
    keep = Keep(newest=1, best=BEST)
    assert after({1: 0.9, 2: 0.3, 3: 0.8, 4: 0.2}, tmp_path, keep, every=2) == ([2, 4], "step-000002")


def test_without_best_in_the_recipe_the_link_is_removed(tmp_path: Path) -> None:
    after(CURVE, tmp_path, Keep(newest=2, best=BEST))
    assert (tmp_path / "checkpoints/best").is_symlink()
    manager(Keep(newest=2), tmp_path).point()
    assert not (tmp_path / "checkpoints/best").is_symlink()
    manager(Keep(newest=2), tmp_path / "new").point()  # where nothing has been written yet


def test_a_kill_between_a_checkpoint_and_its_link_is_repaired_at_the_next_start(tmp_path: Path) -> None:
    checkpoints = manager(Keep(newest=1), tmp_path)
    for step in (8, 10):
        PendingCheckpoint(checkpoints.root, step, lambda folder: None, ranks=ALONE).finish(keep=2)
    point(checkpoints.root, NEWEST, checkpoints.root / "step-000008")
    with checkpoints:
        assert (checkpoints.root / "newest").resolve().name == "step-000010"
        assert len(complete(checkpoints.root)) == 2  # a checkpoint is removed only when the next one exists
    with manager(Keep(newest=1), tmp_path / "new") as first:
        assert not first.root.exists()


class Together(Ranks):
    """The first of two processes; the other does the same."""

    def gather(self, value: Any) -> list[Any]:
        return [value] * self.world

    def wait(self) -> None:
        """The other is here."""


class Written:
    """A trainer whose state is a single byte."""

    lora = None

    def save(self, folder: Path, state: dict[str, Any], held: list[HeldFile] | None) -> None:
        folder.mkdir()
        file = HeldFile(folder / "state")
        file.write(b"s")
        if held is None:
            file.write_out()
        else:
            held.append(file)


def written() -> tuple[Any, Any]:
    """That trainer, and a policy of two weights."""
    return Written(), SimpleNamespace(model=torch.nn.Linear(1, 1))


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30, 1e10])
def test_diverged_weights_do_not_replace_a_checkpoint(
    value: float, background: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a single one of the last tensor, in either type of weights."""
    monkeypatch.setattr("vtune.runs.train.checkpoint_manager.write_weights", lambda folder, *_: None)
    settings = Checkpoints(every=1, minutes=None, keep=Keep(newest=1), background=background)
    trainer, policy = written()
    for dtype in (torch.float32, torch.bfloat16):
        out = tmp_path / str(dtype)
        policy.model = torch.nn.Linear(3, 2).to(dtype)
        with CheckpointManager(settings, out, ALONE) as checkpoints:
            checkpoints.save(trainer, policy, "model", 1)
            with torch.no_grad():
                policy.model.bias[1] = value
            with pytest.raises(RunFailed, match="diverged after step 2: the norm of bias is ") as refused:
                checkpoints.save(trainer, policy, "model", 2)
        assert [folder.name for folder in complete(checkpoints.root)] == ["step-000001"]
        assert (checkpoints.root / "newest").resolve().name == "step-000001"
        assert f"(--set model={checkpoints.root}/step-000001) with a lower" in refused.value.fix


def test_weights_that_diverged_on_another_process_are_not_saved_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan = float("nan")
    others = [Diverged(3, "last", nan), Diverged(1, "layer", nan), Diverged(1, "layer", nan)]
    monkeypatch.setattr(Ranks, "gather", lambda self, value: [value, *others])
    checkpoints = manager(Keep(newest=1), tmp_path)
    with pytest.raises(RunFailed, match="the norm of layer is nan") as refused:
        checkpoints.save(*written(), "model", 5)
    assert refused.value.fix == "nothing is saved yet: start a new run with a lower update.learning_rate"
    assert not checkpoints.root.exists()


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_a_joint_save_before_stopping_is_a_checkpoint(
    background: bool, begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was begun before one of them failed, or is written because one has."""
    monkeypatch.setattr("vtune.runs.train.checkpoint_manager.write_weights", lambda folder, *_: None)
    ranks = Together(rank=0, world=2, local=0)
    settings = Checkpoints(every=7, minutes=None, keep=Keep(newest=1), background=background)
    loop = object.__new__(_Loop)
    loop._checkpoints = CheckpointManager(settings, tmp_path, ranks)
    loop._stopping = Stopping(settings, 100, ranks, done=0)

    def save(done: int) -> None:
        loop._checkpoints.save(*written(), "model", done)

    monkeypatch.setattr(loop, "_save", save)

    def step() -> None:
        with loop._checkpoints:
            if begun:
                loop._stopping.after(7, lambda: save(7), loop._checkpoints.finish)
            loop._fail(RunFailed("an engine has died", fix="--resume"), 7)

    with pytest.raises(RunFailed, match="an engine has died"):
        step()
    assert [folder.name for folder in complete(tmp_path / "checkpoints")] == ["step-000007"]


def test_choosing_the_best_by_an_unmeasured_number_gives_a_warning() -> None:
    checkpoints = manager(Keep(newest=1, best=BEST), Path("nowhere"))
    assert checkpoints.doubt("quiz", {"score": 0.5}) is None
    assert checkpoints.doubt("exam", {"reward": 0.5}) is None
    told = checkpoints.doubt("quiz", {"reward": 0.5, "iou@50": 0.2})
    assert told is not None
    assert "`score`, which this evaluation on quiz did not measure; it has reward, iou@50" in told


def test_the_number_of_newest_checkpoints_is_written_as_given() -> None:
    plain = Checkpoints.model_validate({"every": 5, "minutes": None, "keep": 3})
    assert plain.keep == Keep(newest=3)
    assert plain.model_dump()["keep"] == 3
    whole: dict[str, Any] = {"newest": 3, "best": BEST.model_dump(), "every": 10}
    assert Checkpoints.model_validate(plain.model_dump() | {"keep": whole}).model_dump()["keep"] == whole


def test_curve_checkpoints_are_among_those_written() -> None:
    with pytest.raises(ValidationError, match=r"keep\.every 12 is not a multiple of every 5"):
        Checkpoints.model_validate({"every": 5, "minutes": None, "keep": {"newest": 1, "every": 12}})


def test_a_finished_evaluation_of_the_resumed_weights_is_kept(tmp_path: Path) -> None:
    """One that was cut between its lines goes, and so does what was trained after the checkpoint."""
    file = tmp_path / "metrics.jsonl"
    lines = [
        (3, "all"), (4, "eval/quiz/hard"), (4, "eval/quiz/all"), (4, "eval/exam/hard/all"), (4, "all"),
    ]  # fmt: skip
    file.write_text(
        "".join(json.dumps({"step": s, "source": name, "score": 1.0}) + "\n" for s, name in lines)
    )
    with Record(tmp_path, ALONE, {}, track=None, done=4) as record:
        assert record.evaluated == {"quiz"}
        record.write(4, {"eval/exam/all": {"score": 0.5}})
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["step"], one["source"]) for one in told] == [*lines[:3], (4, "eval/exam/all")]


def test_truncated_metrics_are_reported_on_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A full disk cuts the last line of a file, and the checkpoint of its step may be whole all the same."""
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step, "source": "all", "loss": 0.5}) + "\n" for step in range(4)]
    file.write_text("".join(lines))
    with Record(tmp_path, ALONE, {}, track=None, done=4):
        assert "lacks" not in capsys.readouterr().err
    file.write_text("".join(lines)[:-9])
    with Record(tmp_path, ALONE, {}, track=None, done=4) as record:
        assert f"{file} lacks the numbers of step 3" in " ".join(capsys.readouterr().err.split())
        record.write(4, {"all": {"loss": 0.25}})
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [0, 1, 2, 4]


@pytest.mark.parametrize("other", ["quiz", "eval/exam/all"])
def test_a_truncated_total_line_is_noticed_in_any_step(
    other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reinforcement learning writes a line for each source before it, as does an evaluation of every step."""
    file = tmp_path / "metrics.jsonl"
    names = [(step, source) for step in range(4) for source in (other, "all")]
    lines = [json.dumps({"step": step, "source": source, "loss": 0.5}) + "\n" for step, source in names]
    file.write_text("".join(lines))
    with Record(tmp_path, ALONE, {}, track=None, done=4):
        assert "lacks" not in capsys.readouterr().err
    file.write_text("".join(lines)[:-9])
    with Record(tmp_path, ALONE, {}, track=None, done=4):
        assert f"{file} lacks the numbers of step 3" in " ".join(capsys.readouterr().err.split())


class Loads:
    """A trainer whose state is one file."""

    def load(self, folder: Path) -> Any:
        return torch.load(folder / "state.pt", weights_only=False)


LOADS: Any = Loads()


def saved(root: Path) -> Path:
    """A checkpoint of step 3; returns its file of state."""

    def fill(folder: Path) -> None:
        (folder / "deepspeed").mkdir()
        torch.save({"weights": torch.zeros(64)}, folder / "deepspeed" / "state.pt")
        (folder / "model.safetensors").write_bytes(b"weights")

    folder = PendingCheckpoint(root, 3, fill, ranks=ALONE).finish(keep=1)
    assert position(root, LOADS, ALONE, resume=True)[0] == 3
    return folder / "deepspeed/state.pt"


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("size", [0, 200])
def test_a_truncated_checkpoint_is_named(tmp_path: Path, size: int, earlier: bool) -> None:
    """As a copy to another machine that broke off leaves it; also if the manifest lists no files."""
    state = saved(tmp_path)
    folder = tmp_path / "step-000003"
    if earlier:
        (folder / MANIFEST).write_text('{"step": 3}')
        assert position(tmp_path, LOADS, ALONE, resume=True)[0] == 3
    os.truncate(state, size)
    with pytest.raises(DataError, match="the checkpoint is damaged") as refused:
        position(tmp_path, LOADS, ALONE, resume=True)
    assert refused.value.where == str(folder)
    assert "an older one" in refused.value.fix
    state.unlink()
    with pytest.raises(DataError, match=r"state\.pt"):
        position(tmp_path, LOADS, ALONE, resume=True)


def flip(path: Path, byte: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["deepspeed/state.pt", "model.safetensors"])
def test_a_flipped_bit_is_noticed_at_resume(tmp_path: Path, name: str) -> None:
    """Torch and safetensors load such a file."""
    saved(tmp_path)
    flip(tmp_path / "step-000003" / name, 3)
    with pytest.raises(DataError, match=f"damaged: {name} is not as it was written: its checksum differs"):
        position(tmp_path, LOADS, ALONE, resume=True)


def test_each_process_reads_its_own_files_at_resume_and_all_stop_if_one_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "zero_pp_rank_1_mp_rank_00_optim_states.pt"

    def fill(folder: Path) -> None:
        (folder / own).write_bytes(b"moments")

    folder = PendingCheckpoint(tmp_path, 3, fill, ranks=ALONE, mine=lambda path: True).finish(keep=1)
    flip(folder / own, 0)
    first, second = (Together(rank=rank, world=2, local=0) for rank in range(2))
    nobody: Any = None
    with pytest.raises(AttributeError):  # goes on to load it
        position(tmp_path, nobody, first, resume=True)
    with pytest.raises(DataError, match="its checksum differs"):
        position(tmp_path, nobody, second, resume=True)
    monkeypatch.setattr(Ranks, "gather", lambda self, value: [value, "a file is missing"])
    with pytest.raises(DataError, match="the checkpoint is damaged: a file is missing"):
        _check_intact(folder, Ranks(rank=0, world=2, local=0))


def test_a_resume_without_a_checkpoint_says_that_it_starts_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody: Any = None
    assert position(tmp_path, nobody, ALONE, resume=False) == (0, None)
    assert capsys.readouterr().err == ""
    assert position(tmp_path, nobody, ALONE, resume=True) == (0, None)
    assert "no checkpoint yet" in capsys.readouterr().err


def test_processes_that_see_different_checkpoints_do_not_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would read its part of a different state."""

    def gather(self: Ranks, value: Any) -> list[Any]:
        return [value, value, ("node-2", "step-000020"), ("node-2", "step-000020")]

    nobody: Any = None
    monkeypatch.setattr(Ranks, "gather", gather)
    monkeypatch.setattr("socket.gethostname", lambda: "node-1")
    with pytest.raises(RunFailed, match="is none on node-1, step-000020 on node-2") as refused:
        position(tmp_path, nobody, Ranks(rank=0, world=4, local=0), resume=True)
    assert "in a minute" in str(refused.value.fix)
