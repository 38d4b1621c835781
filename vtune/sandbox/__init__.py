"""Run a model's code where it can do no harm.

`Sandbox` is the broker in the trainer, `Session` one trajectory's process. What runs on the other side of
the fence is in `guest/`, which imports nothing of vtune.
"""

from vtune.sandbox.broker import Sandbox
from vtune.sandbox.session import Session
from vtune.sandbox.types import Execution, Limits, ShownCrop

__all__ = ["Execution", "Limits", "Sandbox", "Session", "ShownCrop"]
