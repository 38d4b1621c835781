"""What verifies, imported before the first reply comes: by the server that forks workers, once for all."""

import math_verify  # noqa: F401

from vtune.verifiers import VERIFIERS

tuple(VERIFIERS.values())
