"""Run a model's code where it can do no harm.

`Sandbox` is the broker in the trainer, `Session` the process of one trajectory. The code on the other side of
the fence is in `guest/`, which imports nothing of vtune.
"""

from vtune.sandbox.broker import Sandbox, image_names
from vtune.sandbox.session import Session
from vtune.sandbox.types import Decode, Execution, Isolation, Layer, Limits, ShownCrop

__all__ = [
    "Decode",
    "Execution",
    "Isolation",
    "Layer",
    "Limits",
    "Sandbox",
    "Session",
    "ShownCrop",
    "image_names",
]
