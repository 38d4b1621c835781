"""What processes the rows: this machine, or Ray Data for data that outgrow it. Both keep the order."""

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import Any, Literal

from vtune.errors import MissingExtra, ServiceError, VtuneError
from vtune.runs.curate.rows import Found, Task, look
from vtune.signals import ignore_ends_of_terminals, starting_undisturbed
from vtune.uses import broken, take, used

Workers = Literal["local", "ray"]
Look = Callable[[Iterable[Task]], Iterator[Found]]
"""Tasks -> the result of each, in the order of the tasks."""
MANY = 8192
"""Number of rows from which processes are started, which takes as long as some thousand rows (ours)."""
MOST = 32
"""Maximum number of processes, however many cores there are (ours)."""


def check_workers(workers: Workers) -> None:
    """Check that the workers are available.

    Raises:
        MissingExtra: If Ray is needed but not installed.
    """
    if workers == "ray" and find_spec("ray") is None:
        raise MissingExtra("ray is not installed", fix="pip install 'vtune[ray]'")


@contextmanager
def looking(workers: Workers) -> Iterator[Look]:
    """The function that processes tasks.

    Ray uses a running cluster (`ray start`), or else a local one that ends with the block. Workers read the
    files themselves, so every machine must see them under the same paths; they return only their findings,
    not pictures.

    Raises:
        ServiceError: If Ray's processes do not start, or its cluster cannot be reached.
    """
    if workers == "local":
        with _on_cores() as looks:
            yield looks
        return
    import ray
    import ray.data

    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    except Exception as error:  # Ray has no narrower exception for a slow node
        raise ServiceError(
            f"Ray did not start: {error}",
            fix="start a cluster with `ray start --head` where there is room, or leave out --engine "
            "ray: the result is the same",
        ) from error
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    try:
        yield _on_ray
    finally:
        ray.shutdown()


@contextmanager
def _on_cores() -> Iterator[Look]:
    """Process tasks here, or in one process per core if there are many rows; the processes end with the
    block.

    Raises:
        ServiceError: If one of them ends early.
    """
    cores = min(MOST, len(os.sched_getaffinity(0)))
    others = set(active_children())
    pool: ProcessPoolExecutor | None = None

    def looks(tasks: Iterable[Task]) -> Iterator[Found]:
        nonlocal pool
        given = list(tasks)
        many = sum(task.part.size for task in given) >= MANY
        # A custom function may keep state between rows, so it sees all of them, in order.
        if cores == 1 or len(given) == 1 or not many or used():
            return map(look, given)
        if pool is None:
            pool = ProcessPoolExecutor(cores, mp_context=get_context("spawn"), initializer=_follow)
        with starting_undisturbed():
            return pool.map(look, given)

    try:
        yield looks
    except BaseException as error:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - others:
            process.terminate()
            process.join()
        if isinstance(error, BrokenProcessPool):
            raise ServiceError(
                "a worker process ended early; `dmesg` shows whether it ran out of memory",
                fix="start the same command again, with fewer cores by `taskset -c 0-3`",
            ) from error
        raise
    if pool is not None:
        pool.shutdown()


def _follow() -> None:
    """End with the parent process, and only then: Ctrl-C and the end of a terminal reach both."""
    ignore_ends_of_terminals()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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
        return {"found": pickle.dumps(error)}  # Ray would wrap it in its own error
    except Exception as error:
        if (failed := broken(error)) is None:
            raise
        return {"found": pickle.dumps(failed)}
