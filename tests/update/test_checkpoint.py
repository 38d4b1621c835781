import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtune.errors import DataError, RunFailed
from vtune.update import checkpoint
from vtune.update.checkpoint import (
    PendingCheckpoint,
    newest_checkpoint,
    point,
)
from vtune.update.manifest import MANIFEST, FileFacts, checkpoint_step, damage
from vtune.update.ranks import Ranks
from vtune.update.zero import writer_of

ALONE = Ranks(rank=0, world=1, local=0)


class Many(Ranks):
    """One of several processes; the others have nothing to tell it."""

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def wait(self) -> None:
        """They are here."""


def note(text: str = "weights") -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / "weights").write_text(text)

    return fill


def write(root: Path, step: int, fill: Callable[[Path], None] | None = None, *, keep: int = 2) -> Path:
    pending = PendingCheckpoint(root, step, fill or note(), ranks=ALONE)
    assert pending.written
    return pending.finish(keep=keep)


def steps(root: Path) -> list[int]:
    return [checkpoint_step(folder) for folder in sorted(root.glob("step-*"))]


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write(tmp_path, step)
    assert steps(tmp_path) == [10, 100]
    newest = newest_checkpoint(tmp_path)
    assert newest == tmp_path / "step-000100"
    assert (newest / "weights").read_text() == "weights"
    assert (tmp_path / "newest").resolve() == newest.resolve()


def test_a_later_folder_without_a_manifest_does_not_count_as_the_newest(tmp_path: Path) -> None:
    """Else each new checkpoint would be removed as soon as it is written."""
    write(tmp_path, 6)
    half = tmp_path / "step-000012"
    half.mkdir()
    for step in (8, 10):
        written = write(tmp_path, step, keep=1)
        assert newest_checkpoint(tmp_path) == written
        assert (tmp_path / "newest").resolve() == written.resolve()
    assert sorted(folder.name for folder in tmp_path.glob("step-*")) == ["step-000010", "step-000012"]


def test_an_earlier_folder_without_a_manifest_does_not_count_among_those_to_keep(tmp_path: Path) -> None:
    whole = write(tmp_path, 5, keep=2)
    (tmp_path / "step-000008").mkdir()
    write(tmp_path, 10, keep=2)
    assert sorted(folder.name for folder in tmp_path.glob("step-*")) == [whole.name, "step-000010"]


def test_a_million_steps_are_more_than_999999(tmp_path: Path) -> None:
    for step in (999_998, 999_999, 1_000_000):
        write(tmp_path, step)
    assert newest_checkpoint(tmp_path) == tmp_path / "step-1000000"
    assert {folder.name for folder in tmp_path.glob("step-*")} == {"step-999999", "step-1000000"}


def test_a_copy_among_checkpoints_is_not_removed_counted_or_resumed(tmp_path: Path) -> None:
    write(tmp_path, 1)
    copies = [tmp_path / "step-000001-good", tmp_path / "step-000001 (copy)"]
    for copy in copies:
        shutil.copytree(tmp_path / "step-000001", copy)
    assert newest_checkpoint(tmp_path) == tmp_path / "step-000001"
    asked: list[str] = []

    def spared(folder: Path) -> bool:
        asked.append(folder.name)
        return False

    for step in (2, 3, 4):
        pending = PendingCheckpoint(tmp_path, step, note(), ranks=ALONE)
        pending.finish(keep=2, spared=spared)
    assert asked == ["step-000001", "step-000002"]
    assert {path.name for path in tmp_path.glob("step-*")} == {
        "step-000003",
        "step-000004",
        *(copy.name for copy in copies),
    }


def test_a_link_turned_into_a_folder_by_copying_is_reported_and_not_removed(tmp_path: Path) -> None:
    write(tmp_path / "run", 1)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")  # follows links, like copies to other machines
    newest = tmp_path / "copy" / "newest"
    with pytest.raises(DataError, match="is a folder, and was a link") as refused:
        point(tmp_path / "copy", "newest", tmp_path / "copy" / "step-000001")
    assert "remove it" in refused.value.fix
    assert (newest / "weights").exists()
    shutil.rmtree(newest)
    point(tmp_path / "copy", "newest", tmp_path / "copy" / "step-000001")
    assert newest.is_symlink()


def test_an_incomplete_checkpoint_is_not_created(tmp_path: Path) -> None:
    write(tmp_path, 1)

    def fail(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise OSError("no space left on device")

    with pytest.raises(RunFailed, match="step 2 could not be written: no space") as failed:
        write(tmp_path, 2, fail)
    assert failed.value.fix.endswith("--resume continues from step-000001")
    assert not list(tmp_path.glob(".*part"))
    assert steps(tmp_path) == [1]
    assert newest_checkpoint(tmp_path) == tmp_path / "step-000001"
    # Its leftovers do not block the next attempt.
    write(tmp_path, 2, note("whole"))
    assert (tmp_path / "step-000002" / "weights").read_text() == "whole"
    assert steps(tmp_path) == [1, 2]


def test_an_error_unrelated_to_files_is_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    def exhaust(folder: Path) -> None:
        raise RuntimeError("CUDA out of memory")

    def fill_up(folder: Path) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0")

    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        write(tmp_path, 1, exhaust)
    with pytest.raises(
        RunFailed, match=r"could not be written: most likely no space is left .*unexpected pos 64"
    ) as full:
        write(tmp_path, 1, fill_up)
    assert full.value.fix.endswith("--resume starts over: there is no earlier one")
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_manifest_is_not_a_checkpoint(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    write(tmp_path, 3)
    (tmp_path / "step-000004").mkdir()
    assert newest_checkpoint(tmp_path) == tmp_path / "step-000003"


def test_an_existing_checkpoint_is_overwritten(tmp_path: Path) -> None:
    write(tmp_path, 3, note("old"))
    write(tmp_path, 3, note("new"))
    assert (tmp_path / "step-000003" / "weights").read_text() == "new"


def test_every_process_writes_and_only_the_first_creates_the_folder(tmp_path: Path) -> None:
    order: list[str] = []
    root = tmp_path / "checkpoints"

    def fill(folder: Path) -> None:
        order.append(f"fill {folder.is_dir()}")

    class Second(Ranks):
        def wait(self) -> None:
            order.append("wait")
            if len(order) == 1:
                # The state after the first process's part.
                (root / ".step-000001.part").mkdir(parents=True)

        def gather(self, value: Any) -> list[Any]:
            order.append("gather")
            return [value]

    PendingCheckpoint(root, 1, fill, ranks=Second(1, 2, 1)).finish(keep=1)
    assert order == ["wait", "fill True", "gather", "wait"]
    assert newest_checkpoint(root) is None


def test_the_manifest_lists_the_files_of_all_processes(tmp_path: Path) -> None:
    class First(Many):
        def gather(self, value: Any) -> list[Any]:
            return [value, {"deepspeed/share": FileFacts(3, 891568578)}]  # "abc"

    def fill(folder: Path) -> None:
        (folder / "deepspeed").mkdir()
        (folder / "deepspeed/share").write_text("abc")
        (folder / "weights").write_text("abcabc")

    pending = PendingCheckpoint(
        tmp_path, 7, fill, ranks=First(0, 2, 0), mine=lambda path: path.name == "weights"
    )
    folder = pending.finish(keep=1)
    facts = json.loads((folder / MANIFEST).read_text())
    assert facts["files"].keys() == {"deepspeed/share", "weights"}
    assert facts["files"]["weights"]["size"] == 6
    assert (facts["step"], damage(folder, lambda path: True)) == (7, None)
    (folder / "weights").write_text("abcabd")
    assert damage(folder, lambda path: path.name == "share") is None  # only sizes of the others
    assert damage(folder, lambda path: True) == "weights is not as it was written: its checksum differs"
    (folder / "weights").write_text("abcab")
    (folder / "added by the user").touch()
    assert damage(folder, lambda path: False) == "weights has 5 bytes, and had 6 when it was written"


@pytest.mark.parametrize("files", [[], {"a": 1}, {"a": {"size": 1}}, {"a": {"size": "x", "crc32": 1}}])
def test_a_manifest_with_a_damaged_list_of_files_is_our_error(tmp_path: Path, files: Any) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"step": 1, "files": files}))
    with pytest.raises(DataError, match=MANIFEST):
        damage(tmp_path, lambda path: True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"step": None})])
def test_a_manifest_that_cannot_be_read_is_our_error(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(DataError, match=MANIFEST):
        checkpoint_step(tmp_path)


def test_each_process_syncs_only_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across machines it must: files written by another are not in this machine's page cache."""
    names = [
        "model.safetensors",
        "deepspeed/latest",
        "deepspeed/state/mp_rank_00_model_states.pt",
        *(f"deepspeed/state/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1, 12)),
        "model-00002-of-00013.safetensors",
        "model-00013-of-00013.safetensors",
    ]

    def fill(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()

    synced: list[str] = []
    monkeypatch.setattr(checkpoint, "_to_disk", lambda path: synced.append(path.name))
    for rank, own in ((0, names[:4]), (1, names[4:7:2]), (12, names[5:8:2])):
        (tmp_path / "root/.step-000001.part").mkdir(parents=True, exist_ok=True)
        synced.clear()
        PendingCheckpoint(
            tmp_path / "root", 1, fill, ranks=Many(rank, 13, 0),
            mine=lambda path, rank=rank: writer_of(path) == rank,
        ).finish(keep=1)  # fmt: skip
        wanted = {Path(name).name for name in own} | ({MANIFEST} if rank == 0 else set())
        assert {name for name in synced if "." in name or name == "latest"} - {"root"} >= wanted
        others = {Path(name).name for name in names} - wanted
        assert not others & set(synced)


@pytest.mark.parametrize("fails", [False, True])
def test_a_background_checkpoint_counts_once_it_is_completely_on_disk(tmp_path: Path, fails: bool) -> None:
    write(tmp_path, 1)
    may_go_on = threading.Event()

    def rest() -> None:
        may_go_on.wait(60)
        if fails:
            raise OSError("no space left on device")
        (tmp_path / ".step-000002.part/state").write_text("optimiser")

    pending = PendingCheckpoint(tmp_path, 2, note(), ranks=ALONE, rest=rest, background=True)
    assert not pending.written
    assert newest_checkpoint(tmp_path) == tmp_path / "step-000001"
    may_go_on.set()
    if fails:
        with pytest.raises(RunFailed, match="step 2 could not be written: no space"):
            pending.finish(keep=2)
        assert steps(tmp_path) == [1]
        assert not list(tmp_path.glob(".*part"))
    else:
        assert (pending.finish(keep=2) / "state").read_text() == "optimiser"
        assert steps(tmp_path) == [1, 2]
