"""Fake checks with every kind of outcome, for the tests of the runner."""

import os
import subprocess
import sys
import time

from tests.gpu.checks import Bar, Found, Place


def keeps(place: Place, *, value: float = 1.0) -> Found:
    """Meets its bar."""
    return Found(bars=[Bar(what="it", value=value, at_most=2)], figures={"tiny": place.tiny})


def breaks(place: Place) -> Found:
    """Raises, as for a missing kernel."""
    raise RuntimeError("no kernel image is available")


def dies(place: Place) -> Found:
    """Dies, as when memory runs out."""
    os.abort()


def holds_nothing(place: Place) -> Found:
    """Returns no bar."""
    return Found(bars=[])


def hangs(place: Place) -> Found:
    """Hangs with a child process that would keep the GPU."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (place.folder / "child").write_text(str(child.pid))
    print("waiting for the other rank", flush=True)
    time.sleep(600)
    raise AssertionError
