"""Preloaded by the server that forks workers: what verifies is imported once, before a reply comes."""

import math_verify  # noqa: F401

from vtune.verifiers import VERIFIERS
from vtune.verifiers.math import parsed, same_value

tuple(VERIFIERS.values())

# More of sympy is imported, and tables of the parser made, only when an answer needs them: 0.2 s of a
# processor, which each worker would spend on its first, all of that one's slice.
for answer, truth in (("x^2+1", "1+x^2"), (r"\sqrt{3}", "1.7"), (r"\{1,2\}", "(1,2)")):
    same_value(parsed(truth), parsed(answer))
