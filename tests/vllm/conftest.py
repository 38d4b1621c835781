from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.runs.conftest import cold_start, lens, schooled
from tests.vllm.serving import Server

__all__ = ["cold_start", "lens", "schooled"]

# `make test-vllm` runs these, in an environment of their own; where nothing is collected, pytest fails.
collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def server(schooled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the cold start; a test that kills it starts it again."""
    found = Server(schooled, tmp_path_factory.mktemp("server") / "log")
    try:
        found.start()
        yield found
    finally:
        found.kill()
