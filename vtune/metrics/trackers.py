"""Sends metrics and a few trajectories to experiment trackers; a tracker that fails never stops a run."""

import importlib.util
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from PIL import Image

from vtune.errors import MissingExtra, RecipeError
from vtune.files.terminal import clean, one_line
from vtune.files.writing import write_atomically
from vtune.metrics.montage import caption, montage
from vtune.schema.trajectory import Trajectory

PROJECT = "vtune"
STEP = "step"
"""Name of the x-axis of W&B's charts."""
SHOWN = 4
"""Number of trajectories shown per step."""

_REFUSED = re.compile(r"[^\w\-. :/]", re.ASCII)
"""Characters that MLflow rejects in metric names."""

LONGEST_NAME = 250
"""Maximum number of characters in such a name."""

Rows = Mapping[str, Mapping[str, float]]
"""Source -> name -> value."""


def local_page(out: Path) -> str:
    """The command that opens a run's page, for its tracker; the page's address itself contains a token."""
    return f"vtune view {shlex.quote(str(out.resolve()))}"


def local_key(out: Path, file: Path, row: int) -> str:
    """Where one trajectory is on that page.

    Args:
        out: The run folder.
        file: The trajectory file.
        row: Row in the file.
    """
    key = f"{file.stem}/{row}"
    return f"{key}: #/0/{key} on the page of `{local_page(out)}`"


def title(out: Path) -> str:
    """A run's name in lists of runs: by folder name only, all runs of a sweep would be `seed-0`."""
    return str(Path(*out.resolve().parts[-2:]))


def identity(out: Path, tracker: str, fresh: str) -> str:
    """The id of a run in a tracker that resumes runs by id; stored in the run folder.

    So it moves with the folder, and a new run in the place of a deleted one gets a different id.

    Args:
        out: The run folder.
        tracker: Its name.
        fresh: The id if the tracker does not know the run yet.
    """
    file = out / f"{tracker}-run"
    if file.is_file():
        return file.read_text(encoding="utf-8").strip()
    write_atomically(file, fresh + "\n", option=None)
    return fresh


def verbatim(text: str) -> str:
    """A text as a code block for trackers that render Markdown, so that it has no links or pictures."""
    return "\n".join(f"    {line}" for line in text.split("\n"))


def mlflow_name(name: str) -> str:
    """A metric's name in MLflow's form: plain characters, as a path that leads nowhere else."""
    parts = _REFUSED.sub("_", name).split("/")
    return "/".join(part.strip(". ") or "_" for part in parts)[-LONGEST_NAME:]


class Backend(Protocol):
    """One tracker, opened for one run."""

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Record a step's numbers."""
        ...

    def picture(self, step: int, name: str, picture: Image.Image, text: str) -> None:
        """Record a picture of a step with its text."""
        ...

    def close(self, *, failed: bool) -> None:
        """Send what is left, and whether the run failed."""
        ...


class TensorBoard:
    """Event files in `tensorboard/` of the run folder."""

    def __init__(self, out: Path, settings: Mapping[str, Any], first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter
        self._writer: Any = make(str(out / "tensorboard"), purge_step=first_step)
        self._writer.add_text("page", verbatim(local_page(out)), first_step)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """See `Backend`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def picture(self, step: int, name: str, picture: Image.Image, text: str) -> None:
        """See `Backend`."""
        import numpy as np

        self._writer.add_image(name, np.asarray(picture), step, dataformats="HWC")
        self._writer.add_text(name, verbatim(text), step)

    def close(self, *, failed: bool) -> None:
        """See `Backend`; event files cannot record a failure."""
        self._writer.close()


class WandB:
    """A run of Weights & Biases; `WANDB_MODE` and the like work as usual."""

    def __init__(self, out: Path, settings: Mapping[str, Any], first_step: int) -> None:
        import wandb

        self._wandb: Any = wandb
        self._run: Any = self._wandb.init(
            project=PROJECT,
            name=title(out),
            id=identity(out, "wandb", secrets.token_hex(8)),
            dir=str(out),
            config=dict(settings),
            notes=local_page(out),
            resume="allow",
        )
        # W&B's own step counter holds back the last step until the next begins, and drops earlier steps: a
        # killed run would lose its last step, and a resumed one the steps that it repeats.
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """See `Backend`."""
        self._run.log({STEP: step, **values})

    def picture(self, step: int, name: str, picture: Image.Image, text: str) -> None:
        """See `Backend`."""
        self._run.log({STEP: step, name: self._wandb.Image(picture, caption=text)})

    def close(self, *, failed: bool) -> None:
        """See `Backend`."""
        self._run.finish(exit_code=int(failed))


class Trackio:
    """A run of trackio, which stores it locally unless configured otherwise (`TRACKIO_DIR`)."""

    QUIET: ClassVar[dict[str, Any]] = {
        "resume": "allow",
        "embed": False,
        "auto_log_gpu": False,
        "auto_log_cpu": False,
    }

    def __init__(self, out: Path, settings: Mapping[str, Any], first_step: int) -> None:
        import trackio

        self._trackio: Any = trackio
        config = {**settings, "page": local_page(out)}  # trackio has no notes
        # trackio identifies runs only by name, which is also the name of a folder.
        fresh = f"{title(out).replace(os.sep, '-').lstrip('-')}-{secrets.token_hex(4)}"
        name = identity(out, "trackio", fresh)
        self._trackio.init(project=PROJECT, name=name, config=config, **self.QUIET)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """See `Backend`."""
        self._trackio.log(dict(values), step=step)

    def picture(self, step: int, name: str, picture: Image.Image, text: str) -> None:
        """See `Backend`."""
        self._trackio.log({name: self._trackio.Image(picture, caption=text)}, step=step)

    def close(self, *, failed: bool) -> None:
        """See `Backend`; trackio cannot record a failure."""
        self._trackio.finish()


class MLflow:
    """A run of MLflow at `MLFLOW_TRACKING_URI`; a resumed run continues in the same one."""

    def __init__(self, out: Path, settings: Mapping[str, Any], first_step: int) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self._metric: Any = Metric
        self._client: Any = MlflowClient()
        self._about: tuple[dict[str, Any], str] | None = (dict(settings), verbatim(local_page(out)))
        known = out / "mlflow-run"
        if known.is_file():
            self._run = known.read_text(encoding="utf-8")
            return
        found = self._client.get_experiment_by_name(PROJECT)
        experiment = found.experiment_id if found else self._client.create_experiment(PROJECT)
        self._run = self._client.create_run(experiment, run_name=title(out)).info.run_id
        write_atomically(known, self._run, option=None)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """See `Backend`."""
        now = int(time.time() * 1000)
        # One rejected name would lose all numbers of the step.
        metrics = [self._metric(mlflow_name(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)
        if self._about is not None:
            self._describe(*self._about)

    def _describe(self, settings: dict[str, Any], page: str) -> None:
        """Only after the first numbers: they may arrive where artifacts do not."""
        # A resumed run has ended before, perhaps with other settings or in another place.
        self._client.update_run(self._run, status="RUNNING")
        self._client.set_tag(self._run, "mlflow.note.content", page)
        self._about = None  # if this was not reached, the next step tries again
        self._client.log_dict(self._run, settings, "recipe.json")

    def picture(self, step: int, name: str, picture: Image.Image, text: str) -> None:
        """See `Backend`."""
        place = f"{name}/step-{step:06d}"
        self._client.log_image(self._run, picture, artifact_file=f"{place}.png")
        self._client.log_text(self._run, text, f"{place}.txt")

    def close(self, *, failed: bool) -> None:
        """See `Backend`."""
        self._client.set_terminated(self._run, status="FAILED" if failed else "FINISHED")


BACKENDS: dict[str, tuple[Callable[[Path, Mapping[str, Any], int], Backend], str, str]] = {
    "tensorboard": (TensorBoard, "tensorboard", "tensorboard"),
    "wandb": (WandB, "wandb", "wandb"),
    "trackio": (Trackio, "trackio", "trackio"),
    "mlflow": (MLflow, "mlflow", "mlflow-skinny"),
}
"""Name -> constructor, the module that it needs, and the package that provides it."""

DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
"""Databases in which MLflow stores runs through SQLAlchemy."""


def check_tracker(name: str | None) -> None:
    """Check that a tracker can be used.

    Raises:
        RecipeError: If there is no such tracker, or MLflow has nowhere to write.
        MissingExtra: If its package is not installed.
    """
    if name is None:
        return
    if name not in BACKENDS:
        raise RecipeError(f"there is no tracker {name!r}", fix=f"known: {', '.join(BACKENDS)}")
    _, module, package = BACKENDS[name]
    if importlib.util.find_spec(module) is None:
        what = f"--track {name} needs a package that is not installed"
        raise MissingExtra(what, fix=f"pip install {package}")
    if name == "mlflow":
        _check_mlflow(os.environ.get("MLFLOW_TRACKING_URI", ""))


def _check_mlflow(uri: str) -> None:
    if not uri:
        # MLflow no longer has a default location: its file store is closed, and its database needs an extra.
        fix = (
            "set it to a server, e.g. http://localhost:5000, or to sqlite:///mlflow.db with the full "
            "mlflow package"
        )
        raise RecipeError("MLFLOW_TRACKING_URI is not set", fix=fix)
    scheme, colon, _ = uri.partition(":")
    folder = scheme == "file" or (not colon and uri != "databricks")
    if folder and os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() not in ("true", "1"):
        raise RecipeError(
            f"MLFLOW_TRACKING_URI is a folder ({uri}), and MLflow no longer writes to one by itself",
            fix="set MLFLOW_ALLOW_FILE_STORE=true, or MLFLOW_TRACKING_URI to a server",
        )
    database = scheme.partition("+")[0]
    if database in DATABASES and importlib.util.find_spec("sqlalchemy") is None:
        raise MissingExtra(
            f"the installed slim MLflow cannot keep runs in a database ({database})",
            fix="pip install mlflow, or set MLFLOW_TRACKING_URI to a server",
        )


class Tracker:
    """Reports a run to its tracker; a context manager. Without a name it does nothing.

    A failing tracker is reported once and its failures are counted; the run continues, and its numbers are in
    `metrics.jsonl`.

    Args:
        name: A key of `BACKENDS`, or None.
        out: The run folder.
        settings: The recipe, as plain values.
        first_step: The first step that will be reported.
        warn: Called with one line for the user.
    """

    def __init__(
        self,
        name: str | None,
        out: Path,
        settings: Mapping[str, Any],
        *,
        first_step: int,
        warn: Callable[[str], None],
    ) -> None:
        self._name = name
        self._out = out
        self._warn = warn
        self._backend: Backend | None = None
        self.failures = 0
        if name is not None:
            self._safely(lambda: self._open(BACKENDS[name][0](out, settings, first_step)))

    def _open(self, backend: Backend) -> None:
        self._backend = backend

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        backend = self._backend
        if backend is not None:
            self._safely(partial(backend.close, failed=kind is not None))
        if self.failures > 1:
            self._warn(f"{self._name} failed {self.failures} times in this run")

    def numbers(self, step: int, rows: Rows) -> None:
        """Report a step's numbers as `source/name`."""
        backend = self._backend
        if backend is not None:
            values = {
                one_line(f"{source}/{name}"): value
                for source, row in rows.items()
                for name, value in row.items()
            }
            self._safely(lambda: backend.numbers(step, values))

    def trajectories(self, step: int, drawn: Sequence[Trajectory], file: Path) -> None:
        """Show a few trajectories of a step, those with tool calls first.

        Args:
            step: Their step.
            drawn: All trajectories of a file, in order.
            file: The file that stores them; each text says where the trajectory is on the run's page.
        """
        backend = self._backend
        if backend is None:
            return
        rows = [row for row, one in enumerate(drawn) if one.images]
        for number, row in enumerate(sorted(rows, key=lambda row: not drawn[row].calls)[:SHOWN]):
            text = clean(f"{local_key(self._out, file, row)}\n{caption(drawn[row])}")
            self._safely(
                lambda number=number, row=row, text=text: backend.picture(  # type: ignore[misc]
                    step, f"trajectories/{number}", montage(drawn[row]), text
                )
            )

    def _safely(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever breaks a tracker, days of training continue
            self.failures += 1
            if self.failures == 1:
                self._warn(f"{self._name} failed, the run continues: {type(error).__name__}: {error}")
