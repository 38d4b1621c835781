"""Preloaded by the server that forks workers, so that verifiers are imported once, before any reply."""

import signal

import math_verify  # noqa: F401

from vtune.verifiers import VERIFIERS
from vtune.verifiers.math import parsed, same_value

signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal is for the run, which then ends the server
tuple(VERIFIERS.values())

# sympy imports more modules, and the parser builds its tables, only when an answer needs them. That would add
# 0.2 s to each worker's first answer, all of its time slice.
for answer, truth in (("x^2+1", "1+x^2"), (r"\sqrt{3}", "1.7"), (r"\{1,2\}", "(1,2)")):
    same_value(parsed(truth), parsed(answer))

# Ctrl-C is blocked during this import, see `starting_without_sigint`. Other processes forked from here may
# want it, but not signals that are already pending: ignoring the signal discards those.
handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
signal.signal(signal.SIGINT, handler)
