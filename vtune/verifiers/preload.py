"""Preloaded by the server that forks workers, so that verifiers are imported once, before any reply."""

import signal

import math_verify  # noqa: F401

from vtune.verifiers import VERIFIERS
from vtune.verifiers.math import parsed, same_value

tuple(VERIFIERS.values())

# sympy imports more of itself, and the parser makes its tables, only when an answer needs them. In each
# worker that would be 0.2 s of its first answer, and use up that one's whole time slice.
for answer, truth in (("x^2+1", "1+x^2"), (r"\sqrt{3}", "1.7"), (r"\{1,2\}", "(1,2)")):
    same_value(parsed(truth), parsed(answer))

# Ctrl-C is blocked while this is imported, see `starting_without_sigint`. What others fork here may want to
# hear it, but not what has come so far: to ignore it drops that.
handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
signal.signal(signal.SIGINT, handler)
