import sys

import pytest

from tests.runs.commands import python
from vtune.runs.interpreter import TURN_SECONDS, responsive


def test_loaded_objects_are_frozen_and_later_ones_are_not() -> None:
    ended = python(
        "import gc, weakref\n"
        "from vtune.runs.interpreter import frozen_heap\n"
        "class Ring: pass\n"
        "def ring():\n"
        "    one = Ring(); one.itself = one\n"
        "    return weakref.ref(one)\n"
        "gc.disable()\n"
        "before = ring()\n"
        "with frozen_heap():\n"
        "    within = ring()\n"
        "    with frozen_heap():\n"
        "        kept = gc.get_freeze_count()\n"
        "    gc.collect()\n"
        "    print(kept > 5000, gc.get_freeze_count() == kept, before() is None, within() is None)\n"
        "gc.collect()\n"
        "print(gc.get_freeze_count(), before() is None)"
    )
    assert (ended.stdout, ended.returncode) == ("True True False True\n0 True\n", 0), ended.stderr


def test_the_thread_switch_interval_is_short_and_then_restored() -> None:
    before = sys.getswitchinterval()
    with responsive():
        assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
    assert sys.getswitchinterval() == before
