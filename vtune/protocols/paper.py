"""What the papers that vtune follows say they did: CodeV's tables 3 and 5, V-Triune's table 3.

CodeV evaluates with a fork of VLMEvalKit on the content of `<answer>`; V-Triune's CountBench is
VLMEvalKit's too. Where a judge has read what no rule reads, their scores are higher.
"""

from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Protocol
from vtune.protocols.vlmevalkit import BLIND_RULE, CHOICE, COUNT, REALWORLD

PROTOCOLS.add(
    "paper",
    Protocol(
        about="CodeV (V*, HR-Bench, MME-RealWorld, VLMs Are Blind) and V-Triune (CountBench)",
        rules={
            "vstar": CHOICE,
            "hrbench": CHOICE,
            "mme_realworld": REALWORLD,
            "vlmblind": BLIND_RULE,
            "count": COUNT,
        },
    ),
)
