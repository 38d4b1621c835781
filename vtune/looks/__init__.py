"""What the pictures that a tool returned really show of the inputs.

A call claims regions; here the claims are checked against the pixels. Nothing in this folder knows about
questions, targets or rewards.
"""

from vtune.looks.verify import Checked, check
from vtune.looks.view import View, sampled

__all__ = ["Checked", "View", "check", "sampled"]
