import multiprocessing
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing.context import BaseContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path

import pytest
import torch

from tests.runs.conftest import cold_start, lens, schooled
from tests.vllm.serving import KV_CACHE, Server
from vtune.rollout.vllm_environment import child_environment, environment

__all__ = ["cold_start", "lens", "schooled"]

# `make test-vllm` runs these in a separate environment; there pytest must fail if nothing is collected.
collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


PRELOADED = (
    "tests.vllm.serving",
    "transformers.tokenization_mistral_common",
    "vllm.distributed.elastic_ep.elastic_execute",
    "vllm.entrypoints.cli.serve",
    "vllm.model_executor.layers.quantization.online.base",
    "vllm.model_executor.models.qwen2_5_vl",
    "vllm.plugins.lora_resolvers.filesystem_resolver",
    "vllm.plugins.lora_resolvers.hf_hub_resolver",
    "vllm.utils.cpu_triton_utils",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.engine.core",
    "vllm.v1.pool.flash_maxsim",
    "vllm.v1.worker.cpu_worker",
    "vtune.rollout.vllm",
    "tests.vllm.preloaded",
)
"""Nearly everything that an engine core or server would import, which takes most of its start-up time."""


@pytest.fixture(scope="session", autouse=True)
def warm() -> Iterator[BaseContext]:
    """Start engine cores and servers from one process that has imported vLLM, as clean as a spawned one.

    A spawned process would import for ten seconds before it loads a model.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    with pytest.MonkeyPatch.context() as patch:
        with environment(child_environment(torch.device("cpu"), threads=1)):
            ensure_running()
        patch.setattr("vtune.rollout.vllm.KV_CACHE", KV_CACHE)
        patch.setattr("vllm.v1.engine.utils.get_mp_context", lambda: context)
        yield context


@pytest.fixture(scope="session")
def server(warm: BaseContext, schooled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the cold-started model; a test that kills it restarts it."""
    found = Server(warm, schooled, tmp_path_factory.mktemp("server") / "log")
    try:
        found.start()
        yield found
    finally:
        found.kill()
