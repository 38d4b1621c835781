import sys

import pytest

from tests.runs.commands import python
from vtune.runs.interpreter import TURN_SECONDS, responsive


def test_what_is_loaded_is_passed_over_what_comes_later_is_not_and_afterwards_nothing_is() -> None:
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


def test_other_threads_have_short_turns_and_afterwards_as_before() -> None:
    before = sys.getswitchinterval()
    with responsive():
        assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
    assert sys.getswitchinterval() == before
