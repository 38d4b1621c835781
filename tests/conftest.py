import fcntl
import functools
import gc
import os
import signal
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

from vtune.uses import forget, used

if TYPE_CHECKING:
    from vtune.models.policy import Policy

# Tensor shape and type annotations are only documentation in production; tests check them at run time.
install_import_hook("vtune.update.losses", "beartype.beartype")

# No deadline per example: another worker's training test may keep the machine busy. The same examples every
# time, so that a failure comes from the change under test.
settings.register_profile("vtune", deadline=None, derandomize=True)
settings.load_profile("vtune")

# Typer rebuilds the parser of all verbs at every call, which takes longer than most of the calls in tests.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command

# Under `nohup` the commands that tests start would ignore a closed terminal, too. Handlers are not inherited.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
HANGS = 1800.0
"""Seconds after which a process counts as hung. Only a failing test waits this long; on a busy machine a
process that works can take many times as long as usual."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="rewrite the files of tests/golden")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `-n auto`: one more than cores, as many tests wait for processes or services; quick ones do not."""
    return (os.cpu_count() or 1) + (config.option.markexpr != QUICK)


QUICK = "not slow"
"""The `-m` expression of `make check`."""

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
"""The slowest files, slowest first: one that started late would keep all other workers waiting at the end."""

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
"""Folders and files of tests that train, start sandboxes or services, or take five seconds: `make check`
skips them without importing them. A slow test in a quick file carries the mark `slow` itself."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore modules in which `-m "not slow"` would select no test."""
    if config.option.markexpr != QUICK:
        return None
    return any(collection_path.is_relative_to(ROOT / "tests" / name) for name in SLOW) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests; run the slowest files first, then other slow ones (xdist: `--no-loadscope-reorder`).

    Quick tests come last, in small pieces, so that all workers finish at about the same time.
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
    """Disable garbage collection during test collection: everything that it creates stays alive."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude the tests and their imports, which live until the end, from garbage collection.

    It then runs less often than by default: tests allocate a lot, most of it short-lived.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_runtest_setup() -> None:
    say_little()


def say_little() -> None:
    """Stop transformers from formatting each configuration that it reads for a log line that nobody sees."""
    module = sys.modules.get("transformers.configuration_utils")
    if module is not None:
        module.PreTrainedConfig.__repr__ = object.__repr__


@pytest.fixture
def forgetting() -> Iterator[None]:
    """Leave none of a test's own parts behind for later tests in the same process."""
    yield
    forget(used())


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
    """Run no other module with this fixture meanwhile: some damage public folders, others check them."""
    with (Path(tempfile.gettempdir()) / f"vtune-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def coco_mini() -> Path:
    """A few annotated photographs; skip the test if they are not beside the repository."""
    folder = ROOT.parent / "shared" / "data" / "coco-mini"
    if not (folder / "instances.json").is_file():
        pytest.skip("no ../shared/data/coco-mini beside the repository")
    return folder


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """A named folder, filled by the first worker that needs it. Shared, so tests must not write to it."""
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
        # Otherwise an unrelated test that reads the folder in another worker would fail.
        assert stamps(folder) == before, f"a test has written into {folder}, which all share"


def stamps(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """For each file, the facts that change when it is written or replaced."""
    facts = ((path, path.lstat()) for path in folder.rglob("*") if not path.is_dir())
    return {path: (one.st_ino, one.st_mtime_ns, one.st_size) for path, one in facts}


# Models are built and torch is imported on first use, so that tests without them stay fast.


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
    """The tiny Qwen2.5-VL, loaded. Shared: a test that trains loads its own copy."""
    return load(tiny)


@pytest.fixture(scope="session")
def policy3(tiny3: Path) -> "Policy":
    """The tiny Qwen3-VL, loaded. Shared: a test that trains loads its own copy."""
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
    """A separate copy of the policy, with the demo's pixel budget for pictures."""
    import torch

    from vtune.models.pictures import PixelBudget
    from vtune.models.policy import load_policy

    torch.set_num_threads(1)  # test workers share the cores
    budget = PixelBudget(min_pixels=3136, max_pixels=12544)
    return load_policy(str(folder), budget=budget, dtype="float32", device=torch.device("cpu"))
