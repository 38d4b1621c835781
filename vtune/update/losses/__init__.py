"""Policy-gradient losses, one file per algorithm: its recipe keys, and its function.

To add one: write a file with a section and a function, and register it in `LOSSES`; see `vtune.parts`.
"""

from vtune.update.losses.loss import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens, ratio_of

__all__ = ["LOSSES", "Loss", "PolicyLoss", "PolicyTerms", "Tokens", "ratio_of"]
