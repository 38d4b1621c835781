"""Who looks at the rows: this process, or Ray Data where data outgrow one machine. Both in order."""

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Literal

from vtune.errors import MissingExtra, ServiceError, VtuneError
from vtune.runs.curate.rows import Found, Task, look
from vtune.uses import broken, take, used

Workers = Literal["local", "ray"]
Look = Callable[[Iterable[Task]], Iterator[Found]]
"""Tasks -> what each found, in the order of the tasks."""


def check_workers(workers: Workers) -> None:
    """Check that they are there.

    Raises:
        MissingExtra: If they are Ray's, and Ray is not installed.
    """
    if workers == "ray" and find_spec("ray") is None:
        raise MissingExtra("ray is not installed", fix="pip install 'vtune[ray]'")


@contextmanager
def looking(workers: Workers) -> Iterator[Look]:
    """Who does the work.

    With Ray it is the cluster that is there (`ray start`), else one of this machine's cores that ends with
    the block. Workers read the files themselves, so every machine has to see them under the same paths,
    and hand back what they found: pictures do not travel.

    Raises:
        ServiceError: If Ray's processes do not start here, or its cluster is not reached.
    """
    if workers == "local":
        yield lambda tasks: map(look, tasks)
        return
    import ray
    import ray.data

    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    except Exception as error:  # Ray has no narrower one for a node that is late
        raise ServiceError(
            f"Ray did not start: {error}",
            fix="start a cluster with `ray start --head` where there is room, or leave --engine ray out: it "
            "changes no byte",
        ) from error
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    try:
        yield _on_ray
    finally:
        ray.shutdown()


def _on_ray(tasks: Iterable[Task]) -> Iterator[Found]:
    import ray.data

    brought = pickle.dumps(used())
    rows = [{"task": pickle.dumps(task), "uses": brought} for task in tasks]
    if rows:
        dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
        for row in dataset.map(_look_at).iter_rows():
            found = pickle.loads(row["found"])
            if isinstance(found, VtuneError):
                raise found
            yield found


def _look_at(row: dict[str, Any]) -> dict[str, Any]:
    take(pickle.loads(row["uses"]))  # before the task, which may hold a section of theirs
    try:
        return {"found": pickle.dumps(look(pickle.loads(row["task"])))}
    except VtuneError as error:
        return {"found": pickle.dumps(error)}  # Ray would wrap it up in an error of its own
    except Exception as error:
        if (failed := broken(error)) is None:
            raise
        return {"found": pickle.dumps(failed)}
