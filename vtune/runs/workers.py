"""Who looks at the rows: this process, or Ray Data where data outgrow one machine. Both in order."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any, Literal

from vtune.errors import MissingExtra
from vtune.runs.rows import Found, Task, look

Workers = Literal["local", "ray"]
Look = Callable[[Iterable[Task]], Iterator[Found]]
"""Tasks -> what each found, in the order of the tasks."""


def looker(workers: Workers) -> Look:
    """Who does the work.

    Raises:
        MissingExtra: If it is Ray, and Ray is not installed.
    """
    if workers == "local":
        return lambda tasks: map(look, tasks)
    if find_spec("ray") is None:
        raise MissingExtra("ray is not installed", fix="pip install 'vtune[ray]'")
    return _on_ray


def _on_ray(tasks: Iterable[Task]) -> Iterator[Found]:
    """By Ray Data, on the cluster that is there (`ray start`), else on one of this machine's cores.

    Workers read the files themselves, so every machine has to see them under the same paths, and hand back
    what they found: pictures do not travel.
    """
    import ray
    import ray.data

    rows = [{"task": pickle.dumps(task)} for task in tasks]
    if not rows:
        return
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="warning")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
    for row in dataset.map(_look_at).iter_rows():
        yield pickle.loads(row["found"])


def _look_at(row: dict[str, Any]) -> dict[str, Any]:
    return {"found": pickle.dumps(look(pickle.loads(row["task"])))}
