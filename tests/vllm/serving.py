"""`vllm serve` in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2

from tests.runs.commands import environment

DEADLINE = 240.0
"""Seconds for a start; it takes 25 to 40 on two idle cores."""


class Server:
    """Serves a tiny model as vtune/rollout/README.md says, on this machine."""

    def __init__(self, model: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._model = model
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            str(Path(sys.executable).with_name("vllm")), "serve", str(self._model),
            "--host", "127.0.0.1", "--port", str(self.port),
            "--enable-scale-out",
            "--logprobs-mode", "processed_logprobs",
            "--generation-config", "vllm",
            "--weight-transfer-config", '{"backend": "vtune_files"}',
            "--mm-processor-kwargs", '{"do_resize": false}',
            "--limit-mm-per-prompt", '{"video": 0}',
            "--dtype", "float32", "--max-model-len", "512", "--enforce-eager", "--block-size", "32",
            "--kv-cache-memory-bytes", str(1 << 29),
        ]  # fmt: skip
        settings = environment(
            VLLM_SERVER_DEV_MODE="1",
            VLLM_NO_USAGE_STATS="1",
            VLLM_LOGGING_LEVEL="ERROR",
            VLLM_CPU_OMP_THREADS_BIND="nobind",
            TORCH_COMPILE_DISABLE="1",
            HF_HUB_OFFLINE="1",
        )
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=settings, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + DEADLINE
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"no server: {self._log.read_text()[-2000:]}")
            time.sleep(0.5)

    def kill(self) -> None:
        """End it at once, with its engine."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _healthy(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/health", timeout=5).status_code == 200
        except httpx2.TransportError:
            return False
