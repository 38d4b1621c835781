"""Services in separate processes, as users start them."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.conftest import HANGS
from tests.runs.commands import environment


@dataclass
class Served:
    process: "subprocess.Popen[str]"
    facts: dict[str, Any]
    """What the service printed when it was ready."""

    @property
    def url(self) -> str:
        return str(self.facts["url"])


@contextmanager
def serving(kind: str, *options: str) -> Iterator[Served]:
    """Run `vtune serve KIND` on a free port; yield it once it is ready, and end it afterwards."""
    command = [sys.executable, "-m", "vtune.cli.main", "serve", kind, "--port", "0", "--json", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                break
        assert text, process.stderr.read()
        yield Served(process, json.loads(text))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)  # a test may have stopped it
            process.terminate()
        process.communicate(timeout=HANGS)
