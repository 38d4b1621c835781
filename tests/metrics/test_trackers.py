"""Trackers: the real ones if they are installed, and what happens if one fails."""

import importlib.util
import io
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from tests.schema.records import TRAJECTORY
from vtune.errors import MissingExtra, RecipeError
from vtune.metrics import trackers
from vtune.metrics.montage import HEIGHT, caption, montage
from vtune.metrics.trackers import SHOWN, Tracker, check_tracker, local_key, local_page
from vtune.schema.message import Picture
from vtune.schema.trajectory import Call, Crop, Trajectory


def png(width: int, height: int, colour: str) -> Picture:
    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, "PNG")
    return Picture(data=out.getvalue())


def looked() -> Trajectory:
    """A photograph and a crop of it returned by a call."""
    call = Call(
        tool="python", arguments="{}", status="ok", crops=(Crop(image=0, bbox=(10, 10, 60, 60), shown=1),)
    )
    return replace(TRAJECTORY, images=(png(200, 100, "blue"), png(50, 50, "green")), calls=(call,))


def tracked(name: str, out: Path) -> tuple[Tracker, list[str]]:
    """Log two steps to a tracker, with trajectories in the second."""
    told: list[str] = []
    out.mkdir(exist_ok=True)
    with Tracker(name, out, {"seed": 0}, first_step=0, warn=told.append) as tracker:
        for step in range(2):
            tracker.numbers(step, {"all": {"reward": 0.25 * step}, "lens": {"reward": 0.5}})
        drawn = [replace(looked(), calls=()), *[looked()] * (SHOWN + 3)]
        tracker.trajectories(1, drawn, out / "trajectories" / "step-000001.parquet")
    return tracker, told


def test_tensorboard_gets_numbers_and_pictures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    tracker, told = tracked("tensorboard", tmp_path)
    assert (tracker.failures, told) == (0, [])
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("all/reward")] == [(0, 0.0), (1, 0.25)]
    assert sorted(events.Tags()["images"]) == [f"trajectories/{n}" for n in range(SHOWN)]
    said = events.Tensors("trajectories/0/text_summary")[0].tensor_proto.string_val[0].decode()
    assert said.startswith("    step-000001/1: #/0/step-000001/1 on the page of `vtune view /"), (
        "with calls first"
    )
    page = events.Tensors("page/text_summary")[0].tensor_proto.string_val[0].decode()
    assert page == f"    vtune view {tmp_path}"
    (image,) = events.Images("trajectories/0")
    assert (image.step, image.height) == (1, HEIGHT)


@pytest.mark.slow
def test_wandb_offline_gets_numbers_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker, told = tracked("wandb", tmp_path)
    assert (tracker.failures, told) == (0, [])
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(list(tmp_path.glob("wandb/offline-run-*/files/media/images/trajectories/*.png"))) == SHOWN


def test_mlflow_gets_numbers_and_pictures_and_a_resumed_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(RecipeError, match="MLFLOW_TRACKING_URI is not set"):
        check_tracker("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    found_spec = importlib.util.find_spec
    with monkeypatch.context() as slim:
        slim.setattr(
            importlib.util, "find_spec", lambda name: None if name == "sqlalchemy" else found_spec(name)
        )
        with pytest.raises(MissingExtra, match=r"slim MLflow .* \(sqlite\)"):
            check_tracker("mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    for place in ("mlruns", (tmp_path / "store").as_uri()):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
        with pytest.raises(RecipeError, match=r"is a folder .* no longer writes to one"):
            check_tracker("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    check_tracker("mlflow")
    for _ in range(2):
        tracker, told = tracked("mlflow", tmp_path / "run")
        assert (tracker.failures, told) == (0, [])
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    found = client.get_experiment_by_name("vtune")
    assert found is not None
    (run,) = client.search_runs([found.experiment_id])
    history = client.get_metric_history(run.info.run_id, "all/reward")
    assert {(m.step, m.value) for m in history} == {(0, 0.0), (1, 0.25)}
    assert len(client.list_artifacts(run.info.run_id, "trajectories")) == SHOWN
    assert run.data.tags["mlflow.note.content"] == f"    vtune view {tmp_path / 'run'}"


def test_a_resumed_run_is_running_in_mlflow_with_its_present_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracked("mlflow", tmp_path / "before")
    moved = (tmp_path / "before").rename(tmp_path / "after")
    client = MlflowClient()
    run = (moved / "mlflow-run").read_text(encoding="utf-8")
    with Tracker("mlflow", moved, {"seed": 1}, first_step=2, warn=print) as tracker:
        assert client.get_run(run).info.status == "FINISHED"
        tracker.numbers(2, {"all": {"reward": 1.0}})
        found = client.get_run(run)
        assert found.info.status == "RUNNING"
        assert found.data.tags["mlflow.note.content"] == f"    vtune view {moved}"
        file = Path(client.download_artifacts(run, "recipe.json", str(tmp_path)))
        assert json.loads(file.read_text(encoding="utf-8")) == {"seed": 1}
    assert tracker.failures == 0
    assert client.get_run(run).info.status == "FINISHED"


def test_mlflow_gets_numbers_without_a_place_for_artifacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")

    def refuse(*_: Any) -> None:
        raise PermissionError("no key for the bucket")

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr(mlflow.MlflowClient, "log_dict", refuse)
    told: list[str] = []
    with Tracker("mlflow", tmp_path, {"seed": 0}, first_step=0, warn=told.append) as tracker:
        for step in range(2):
            tracker.numbers(step, {"all": {"reward": 0.5}})
    assert (tracker.failures, told) == (
        1,
        ["mlflow failed, the run continues: PermissionError: no key for the bucket"],
    )
    run = (tmp_path / "mlflow-run").read_text(encoding="utf-8")
    assert [m.step for m in mlflow.MlflowClient().get_metric_history(run, "all/reward")] == [0, 1]


def test_trackio_gets_numbers_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Set before the import, which reads it.
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("trackio")
    tracker, told = tracked("trackio", tmp_path)
    assert (tracker.failures, told) == (0, [])
    assert any((tmp_path / "trackio").rglob("*"))


@pytest.mark.parametrize(("name", "key"), [("wandb", "id"), ("trackio", "name")])
def test_a_runs_identity_is_stored_in_its_folder_and_survives_a_move(
    name: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both trackers append to a run with the same identity, and drop or mix steps that exist already."""
    ids: list[str] = []

    def init(**given: Any) -> SimpleNamespace:
        ids.append(given[key])
        return SimpleNamespace(finish=lambda **_: None, define_metric=lambda *_, **__: None)

    monkeypatch.setitem(
        sys.modules,
        name,
        SimpleNamespace(init=init, finish=lambda: None),  # type: ignore[arg-type]
    )

    def opened(out: Path, first_step: int) -> str:
        out.mkdir(parents=True, exist_ok=True)
        with Tracker(name, out, {}, first_step=first_step, warn=ids.append) as tracker:
            assert tracker.failures == 0
        return ids[-1]

    run = tmp_path / "neither" / "seed-0"
    first = opened(run, 0)
    assert opened(run, 0) == first, "continued from its beginning"
    run.rename(tmp_path / "moved")
    assert opened(tmp_path / "moved", 6) == first
    assert len({first, opened(run, 0), opened(tmp_path / "both" / "seed-0", 0)}) == 3
    one, two = (opened(tmp_path / sweep / "seed-1", 6) for sweep in ("neither", "both"))
    assert one != two, "first tracked when they were resumed"
    assert opened(tmp_path / "both" / "seed-1", 9) == two


def test_wandb_gets_steps_as_a_column_as_its_own_count_drops_repeated_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = []
    axes: list[Any] = []
    run = SimpleNamespace(
        log=lambda *row, **how: rows.append((*row, how)),
        define_metric=lambda *name, **how: axes.append((*name, how)),
        finish=lambda **_: None,
    )
    module = SimpleNamespace(init=lambda **_: run)
    monkeypatch.setitem(sys.modules, "wandb", module)  # type: ignore[arg-type]
    with Tracker("wandb", tmp_path, {}, first_step=3, warn=rows.append) as tracker:
        tracker.numbers(4, {"all": {"reward": 0.5}})
        tracker.numbers(3, {"eval/quiz/all": {"score": 0.25}})
    assert rows == [({"step": 4, "all/reward": 0.5}, {}), ({"step": 3, "eval/quiz/all/score": 0.25}, {})]
    assert axes == [("step", {}), ("*", {"step_metric": "step"})]


class Broken:
    """A tracker whose server is gone."""

    def __init__(self, out: Path, settings: Any, first_step: int) -> None:
        pass

    def numbers(self, step: int, values: Any) -> None:
        raise ConnectionError("no route to host")

    picture = numbers

    def close(self, *, failed: bool) -> None:
        raise ConnectionError("no route to host")


def test_a_failing_tracker_is_reported_once_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(trackers.BACKENDS, "wandb", (Broken, "json", "wandb"))
    tracker, told = tracked("wandb", tmp_path)
    assert tracker.failures == 2 + SHOWN + 1
    assert told == [
        "wandb failed, the run continues: ConnectionError: no route to host",
        f"wandb failed {tracker.failures} times in this run",
    ]


def test_a_tracker_that_does_not_open_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(out: Path, settings: Any, first_step: int) -> Any:
        raise PermissionError("no key")

    monkeypatch.setitem(trackers.BACKENDS, "wandb", (refuse, "json", "wandb"))
    tracker, told = tracked("wandb", tmp_path)
    assert (tracker.failures, told) == (1, ["wandb failed, the run continues: PermissionError: no key"])


def test_a_tracker_must_be_known_and_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    check_tracker(None)
    with pytest.raises(RecipeError, match="no tracker 'neptune'"):
        check_tracker("neptune")
    monkeypatch.setitem(trackers.BACKENDS, "mlflow", (Broken, "no_such_module", "mlflow-skinny"))
    with pytest.raises(MissingExtra) as caught:
        check_tracker("mlflow")
    assert caught.value.fix == "pip install mlflow-skinny"


def test_a_montage_shows_pictures_in_order_with_the_boxes_of_crops() -> None:
    picture = montage(looked())
    assert picture.height == HEIGHT
    assert picture.getpixel((100, 200)) == (0, 0, 255)
    assert picture.getpixel((picture.width - 100, 200)) == (0, 128, 0)
    red = [x for x in range(512) if picture.getpixel((x, 60))[0] > 150]  # type: ignore[index]
    assert (min(red), max(red)) == pytest.approx((25, 155), abs=4)


def test_the_caption_shows_the_rewards() -> None:
    assert "unscored" in caption(replace(looked(), reward=None))
    assert caption(looked()).startswith(TRAJECTORY.sample_id)
    assert json.dumps(caption(replace(looked(), answer=None))).count("no answer") == 1


def test_a_tracker_learns_whether_the_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []

    class Listening(Broken):
        def close(self, *, failed: bool) -> None:
            ended.append(failed)

    monkeypatch.setitem(trackers.BACKENDS, "wandb", (Listening, "json", "wandb"))
    with Tracker("wandb", tmp_path, {}, first_step=0, warn=print):
        pass
    with pytest.raises(ValueError), Tracker("wandb", tmp_path, {}, first_step=0, warn=print):  # noqa: PT011
        raise ValueError
    assert ended == [False, True]


def test_the_tracker_page_can_be_opened_from_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "a run; rm -rf"
    assert shlex.split(local_page(out)) == ["vtune", "view", str(out)]
    said = local_key(out, out / "trajectories" / "step-000010-rank-1.parquet", 3)
    assert said.startswith("step-000010-rank-1/3: #/0/step-000010-rank-1/3 on the page of `vtune view ")
