"""A vLLM server on the second GPU that receives its weights over NCCL from the first."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.gpu.checks import Found, Place
from tests.gpu.models import tiny_model
from tests.gpu.ranks import found, recipe
from tests.gpu.running import Memory, settings, vtune_apart
from vtune.models.network import address_towards

START = 180.0
"""Seconds for a server to start."""
ELSEWHERE = "192.0.2.1"
"""An unused address (RFC 5737): the route to it reveals this machine's own address."""


def check(place: Place) -> Found:
    """As on two machines: the server is addressed by this machine's external address, if it has one."""
    model = tiny_model(place.models / "tiny")
    given = recipe(place, model)
    with Memory() as memory, served(model, place.folder / "server.log") as url:
        more = {"rollout.engine": "vllm", "rollout.servers": f"[{url}]"}
        words = ["rl", "--recipe", "codev-tiny", "--out", str(place.folder / "run"), *settings(given | more)]
        vtune_apart(words, CUDA_VISIBLE_DEVICES="0")
    return found(place, "float32", memory, both=True)


@contextmanager
def served(model: Path, log: Path) -> Iterator[str]:
    """Run a server as described in vtune/rollout/README.md, and yield its URL."""
    host = _address()
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = int(probe.getsockname()[1])
    words = [
        "serve", str(model), "--host", "0.0.0.0", "--port", str(port),
        "--enable-scale-out",
        "--logprobs-mode", "processed_logprobs",
        "--generation-config", "vllm",
        "--mm-processor-kwargs", '{"do_resize": false}',
        "--limit-mm-per-prompt", '{"video": 0}',
        "--dtype", "float32", "--max-model-len", "512", "--gpu-memory-utilization", "0.3",
        "--weight-transfer-config", '{"backend": "nccl"}',
    ]  # fmt: skip
    # As in the engine's own processes: in TF32, attention differs by ten times the tolerance of float32.
    precise = {"TRITON_F32_DEFAULT": "ieee"}
    environment = {**os.environ, **precise, "VLLM_SERVER_DEV_MODE": "1", "CUDA_VISIBLE_DEVICES": "1"}
    with log.open("wb") as said:
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", *words]
        server = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
    try:
        url = f"http://{host}:{port}"
        _wait(server, url, log)
        yield url
    finally:
        server.terminate()
        server.wait()


def _address() -> str:
    try:
        return address_towards(ELSEWHERE)
    except OSError:
        return "127.0.0.1"


def _wait(server: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"the server did not come up: {log.read_text(errors='replace')[-2000:]}")
