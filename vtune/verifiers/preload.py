"""Preloaded by the server that forks workers, so that verifiers are imported once, before any reply."""

import signal

import math_verify  # noqa: F401

from vtune.signals import ignore_ends_of_terminals
from vtune.verifiers import VERIFIERS
from vtune.verifiers.math import parsed, same_value

tuple(VERIFIERS.values())

# sympy imports more modules, and the parser builds its tables, only when an answer needs them. That would add
# 0.2 s to each worker's first answer, all of its time slice.
for answer, truth in (("x^2+1", "1+x^2"), (r"\sqrt{3}", "1.7"), (r"\{1,2\}", "(1,2)")):
    same_value(parsed(truth), parsed(answer))

# Ctrl-C and the end of the terminal are blocked during this import, see `starting_undisturbed`. Both are for
# the run, which then ends the server. Other processes forked from here may want Ctrl-C, but none
# that is pending.
handler = signal.getsignal(signal.SIGINT)
ignore_ends_of_terminals()
signal.signal(signal.SIGINT, handler)
