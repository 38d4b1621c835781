import errno
from pathlib import Path

import pytest

from vtune.errors import DataError, RunFailed
from vtune.metrics.log import MetricsLine, MetricsLog, read_metrics


def write(path: Path, steps: range, *, first_step: int, value: float = 1.0) -> None:
    with MetricsLog(path, first_step=first_step) as log:
        for step in steps:
            log.write(step, {"quiz": {"reward": value}, "all": {"reward": value, "trajectories": 4}})


def test_written_metrics_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    write(path, range(2), first_step=0)
    assert read_metrics(path)[:2] == [
        MetricsLine(0, "quiz", {"reward": 1.0}),
        MetricsLine(0, "all", {"reward": 1.0, "trajectories": 4}),
    ]
    assert len(read_metrics(path)) == 4


def test_a_line_is_on_disk_before_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path, first_step=0) as log:
        log.write(0, {"quiz": {"reward": 1.0}})
        assert len(read_metrics(path)) == 1


def test_a_resumed_run_writes_its_steps_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(5), first_step=0)
    with path.open("a") as file:
        file.write('{"step": 5, "sour')
    write(path, range(3, 6), first_step=3, value=2.0)
    lines = [line for line in read_metrics(path) if line.source == "quiz"]
    assert [line.step for line in lines] == list(range(6))
    assert [line.values["reward"] for line in lines] == [1.0] * 3 + [2.0] * 3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_number_stops_the_run(tmp_path: Path, value: float) -> None:
    with (
        MetricsLog(tmp_path / "m.jsonl", first_step=0) as log,
        pytest.raises(RunFailed, match=r"kl(.|\n)*step 7"),
    ):
        log.write(7, {"quiz": {"kl": value}})


@pytest.mark.parametrize(
    "line",
    ["nonsense", "[]", "{}", '{"step": "1", "source": "a"}', '{"step": 1, "source": "a", "kl": "low"}'],
)
def test_a_broken_line_is_reported(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 0, "source": "a"}}\n{line}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2(.|\n)*delete it"):
        read_metrics(path)


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        read_metrics(tmp_path / "nowhere.jsonl")


def test_a_full_disk_is_a_message_and_keeps_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(5), first_step=0)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RunFailed, match=r"metrics\.jsonl cannot be written: No space left(.|\n)*make room"):
        MetricsLog(path, first_step=3)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_in_the_middle_of_a_run_is_a_message_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl", first_step=0)
    log._file.close()
    monkeypatch.setattr(log, "_file", open("/dev/full", "a"))  # noqa: SIM115 - the log closes it
    with (
        pytest.raises(RunFailed, match=r"metrics\.jsonl cannot be written: No space left(.|\n)*make room"),
        log,
    ):
        log.write(0, {"all": {"reward": 1.0}})
