"""Checks that end in each way, for the tests of what runs them."""

import os
import subprocess
import sys
import time

from tests.gpu.checks import Bar, Found, Place


def keeps(place: Place, *, value: float = 1.0) -> Found:
    """A bar of two."""
    return Found(bars=[Bar(what="it", value=value, at_most=2)], figures={"tiny": place.tiny})


def breaks(place: Place) -> Found:
    """As by a missing kernel."""
    raise RuntimeError("no kernel image is available")


def dies(place: Place) -> Found:
    """As when memory runs out."""
    os.abort()


def holds_nothing(place: Place) -> Found:
    """A check without a bar."""
    return Found(bars=[])


def hangs(place: Place) -> Found:
    """With a process of its own that would keep the GPU."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (place.folder / "child").write_text(str(child.pid))
    print("waiting for the other rank", flush=True)
    time.sleep(600)
    raise AssertionError
