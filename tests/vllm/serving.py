"""`vllm serve` in a separate process."""

import importlib
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx2

from tests.conftest import HANGS
from tests.runs.commands import environment

KV_CACHE = 1 << 27
"""Bytes for 128 conversations of 512 tokens with the tiny model; small, as zeroing the cache takes time."""


def serve(words: Sequence[str], settings: Mapping[str, str], log: Path) -> None:
    """Run `vllm serve` in a separate session."""
    os.setsid()
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ.clear()
    os.environ.update(settings)
    sys.argv = ["vllm", "serve", *words]
    # Imported by name, so that importing this file to start a process does not import vLLM. The engine core
    # is forked, as vLLM does if it can; on a CPU it would spawn it, and import everything again.
    fork = multiprocessing.get_context("fork")
    importlib.import_module("vllm.v1.engine.utils").get_mp_context = lambda: fork
    importlib.import_module("vllm.entrypoints.cli.main").main()


class Server:
    """Serves a tiny model as vtune/rollout/README.md says, on this machine.

    Args:
        context: The multiprocessing context that starts its process.
        model: The model's folder.
        log: The file for its output.
    """

    def __init__(self, context: BaseContext, model: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._context = context
        self._model = model
        self._log = log
        self._process: BaseProcess | None = None

    def start(self) -> None:
        words = [
            str(self._model),
            "--host", "127.0.0.1", "--port", str(self.port),
            "--enable-scale-out",
            "--logprobs-mode", "processed_logprobs",
            "--generation-config", "vllm",
            "--weight-transfer-config", '{"backend": "vtune_files"}',
            "--mm-processor-kwargs", '{"do_resize": false}',
            "--limit-mm-per-prompt", '{"video": 0}',
            "--dtype", "float32", "--max-model-len", "512", "--enforce-eager", "--block-size", "32",
            "--kv-cache-memory-bytes", str(KV_CACHE),
        ]  # fmt: skip
        settings = environment(
            VLLM_SERVER_DEV_MODE="1",
            VLLM_NO_USAGE_STATS="1",
            VLLM_LOGGING_LEVEL="ERROR",
            VLLM_CPU_OMP_THREADS_BIND="nobind",
            # Run the model in the scheduler's process: a separate one would busy-wait.
            VLLM_ENABLE_V1_MULTIPROCESSING="0",
            TORCH_COMPILE_DISABLE="1",
            HF_HUB_OFFLINE="1",
        )
        self._process = self._context.Process(  # type: ignore[attr-defined]
            target=serve, args=(words, settings, self._log)
        )
        self._process.start()
        until = time.monotonic() + HANGS  # takes 25 to 40 s on two idle cores if nothing is imported yet
        while not self._healthy():
            if not self._process.is_alive() or time.monotonic() > until:
                raise AssertionError(f"no server: {self._log.read_text()[-2000:]}")
            time.sleep(0.5)

    def kill(self) -> None:
        """Kill it at once, with its engine."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)  # type: ignore[arg-type]
            self._process.join()
            self._process = None

    def _healthy(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/health", timeout=5).status_code == 200
        except httpx2.TransportError:
            return False
