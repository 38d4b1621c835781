import fcntl
import functools
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.main
import typer.testing
from hypothesis import settings
from jaxtyping import install_import_hook

if TYPE_CHECKING:
    from vtune.models.policy import Policy

# Shapes and types of tensors are annotations in production and assertions here.
install_import_hook("vtune.update.losses", "beartype.beartype")

# No time limit an example: the machine may be busy with a training test next door. The same examples
# every time: a change is judged by what it changed.
settings.register_profile("vtune", deadline=None, derandomize=True)
settings.load_profile("vtune")

# Typer makes the parser of all verbs anew at every call, which takes longer than most of the calls in tests.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
HANGS = 1800.0
"""Seconds after which a process is taken for one that waits for ever. Nobody waits as long but for a failure,
and what works takes many times its usual time where the machine has other things to do."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="rewrite the files of tests/golden")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Of `-n auto`: one more than cores, for many tests wait for processes and services; the quick do not."""
    return (os.cpu_count() or 1) + (config.option.markexpr != QUICK)


QUICK = "not slow"
"""What `make check` gives as `-m`."""

LONGEST = (
    "test_launch.py",
    "test_deepspeed.py",
    "test_outcomes.py",
    "test_mixed_tasks.py",
    "test_curation.py",
    "test_own_scores.py",
    "test_bad_inputs.py",
    "test_browser.py",
    "test_benchmarks.py",
    "test_step.py",
    "test_online_eval.py",
    "test_recipes_check.py",
    "test_counterfactual.py",
    "test_reward_attack.py",
    "test_effects.py",
    "test_codev.py",
    "test_rl.py",
    "test_deferred.py",
    "test_agent.py",
    "test_sweep.py",
)
"""What takes a processor longest, longest first: a worker that began late with one would keep all waiting."""

SLOW = (
    "chains",
    "cuda",
    "fuzz",
    "gpu",
    "runs",
    "sandbox",
    "advantage/test_credit.py",
    "data/formats/test_memory.py",
    "data/formats/test_round_trip.py",
    "data/test_lens.py",
    "data/test_lens_reader.py",
    "data/test_shapes.py",
    "data/test_trails.py",
    "looks/test_verify.py",
    "metrics/test_detection_scores.py",
    "metrics/test_detection_set.py",
    "metrics/test_intervals.py",
    "metrics/test_ovdeval.py",
    "metrics/test_paired.py",
    "protocols/test_parsers.py",
    "reward/test_connection_timeouts.py",
    "reward/test_garbage.py",
    "reward/test_hacks.py",
    "reward/test_injection.py",
    "reward/test_released.py",
    "reward/test_score.py",
    "reward/test_service.py",
    "reward/test_storm.py",
    "rollout/test_team.py",
    "rollout/test_transformers.py",
    "update/test_deepspeed.py",
    "update/test_memory.py",
    "verifiers/test_verifying.py",
    "test_packaging.py",
)
"""Folders and files of tests that train, start sandboxes or services, or take five seconds: `make
check` leaves them out, and does not import them. A slow test among quick ones has the mark `slow` itself."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules of which `-m "not slow"` would leave nothing."""
    if config.option.markexpr != QUICK:
        return None
    return any(collection_path.is_relative_to(ROOT / "tests" / name) for name in SLOW) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks `slow`; the longest files first, then what is slow (with xdist: `--no-loadscope-reorder`).

    What is quick comes last, in small pieces: so all workers end together.
    """
    rank = {name: number for number, name in enumerate(LONGEST)}
    slow = [ROOT / "tests" / name for name in SLOW]
    is_slow = {
        file: any(file.is_relative_to(path) for path in slow) for file in {item.path for item in items}
    }
    items.sort(key=lambda item: rank.get(item.path.name, len(rank) + (not is_slow[item.path])))
    for item in items:
        if is_slow[item.path]:
            item.add_marker("slow")


def pytest_configure() -> None:
    """What collection makes stays: until it ends there is no garbage to look for."""
    gc.disable()


def pytest_collection_finish() -> None:
    """The tests and what they import stay until the end: garbage is not looked for among them.

    It is looked for less often than by default: tests allocate much, most of it short-lived.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_runtest_setup() -> None:
    say_little()


def say_little() -> None:
    """Transformers writes out each configuration that it reads, for a line of a log that nobody sees."""
    module = sys.modules.get("transformers.configuration_utils")
    if module is not None:
        module.PreTrainedConfig.__repr__ = object.__repr__


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/golden/NAME byte by byte; `pytest --golden` rewrites the file."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no {path}; `pytest --golden` writes it"
        said = f"review what changed; `pytest --golden` rewrites tests/golden/{name}"
        assert text == path.read_text(encoding="utf-8"), said

    return compare


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """No other module with this fixture runs: some do harm in public folders, others look for it there."""
    with (Path(tempfile.gettempdir()) / f"vtune-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def coco_mini() -> Path:
    """A few annotated photographs that may lie beside the repository."""
    folder = ROOT.parent / "shared" / "data" / "coco-mini"
    if not (folder / "instances.json").is_file():
        pytest.skip("no ../shared/data/coco-mini beside the repository")
    return folder


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """A folder by its name, filled by the first test worker that wants it. Shared: nobody writes into it."""
    root = tmp_path_factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "once"
    given: dict[Path, dict[Path, tuple[int, int, int]]] = {}

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder, filled = root / name, root / f"{name}.filled"
        root.mkdir(exist_ok=True)
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not filled.exists():
                fill(folder)
                filled.touch()
        given.setdefault(folder, stamps(folder))
        return folder

    yield make
    for folder, before in given.items():
        # A test of another worker, which read it at that moment, would fail for no reason of its own.
        assert stamps(folder) == before, f"a test has written into {folder}, which all share"


def stamps(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """What changes of a file that is written or replaced."""
    facts = ((path, path.lstat()) for path in folder.rglob("*") if not path.is_dir())
    return {path: (one.st_ino, one.st_mtime_ns, one.st_size) for path, one in facts}


# Models are built and torch is imported on first use: tests that need neither stay fast.


@pytest.fixture(scope="session")
def tiny(once: Once) -> Path:
    """The folder of a tiny Qwen2.5-VL with random weights."""
    return once("qwen2_5_vl", lambda folder: build(folder, "qwen2_5_vl"))


@pytest.fixture(scope="session")
def tiny3(once: Once) -> Path:
    """The folder of a tiny Qwen3-VL with random weights."""
    return once("qwen3_vl", lambda folder: build(folder, "qwen3_vl"))


@pytest.fixture(scope="session")
def policy(tiny: Path) -> "Policy":
    """The tiny Qwen2.5-VL, loaded. Shared: a test that trains loads one of its own."""
    return load(tiny)


@pytest.fixture(scope="session")
def policy3(tiny3: Path) -> "Policy":
    """The tiny Qwen3-VL, loaded. Shared: a test that trains loads one of its own."""
    return load(tiny3)


@pytest.fixture(params=["qwen2_5_vl", "qwen3_vl"])
def each_policy(request: pytest.FixtureRequest) -> "Policy":
    """Each family in turn."""
    found: Policy = request.getfixturevalue("policy" if request.param == "qwen2_5_vl" else "policy3")
    return found


def build(folder: Path, family: str) -> Path:
    from vtune.data import lens
    from vtune.models.tiny import build_tiny

    build_tiny(folder, lens.corpus(1, seed=0, count=100), seed=0, family=family)  # type: ignore[arg-type]
    return folder


def load(folder: Path) -> "Policy":
    """A policy that nobody else uses; it sees pictures at the size of the demo."""
    import torch

    from vtune.models.pictures import PixelBudget
    from vtune.models.policy import load_policy

    torch.set_num_threads(1)  # test workers share the cores
    budget = PixelBudget(min_pixels=3136, max_pixels=12544)
    return load_policy(str(folder), budget=budget, dtype="float32", device=torch.device("cpu"))
