"""OCRBench v2 and MEGA-Bench: the question unchanged, whichever harness asks."""

from vtune.protocols import vtune as ours
from vtune.protocols.expressions import ask_as_is
from vtune.protocols.protocol import Rule

OFFICIAL = Rule(ask=ask_as_is, grade=ours.grade, by="verifier", scorer="ocrbench_v2", reads="reply")
"""The authors' script and VLMEvalKit: the mean over categories."""
LMMS = Rule(ask=ask_as_is, grade=ours.grade, by="verifier", scorer="ocrbench_v2_weighted", reads="reply")
"""lmms-eval: the mean over questions. It also limits replies to 128 tokens; here the agent sets that."""
MEGA_BENCH = {
    "mega_bench": Rule(ask=ask_as_is, grade=ours.grade, by="verifier", scorer="mega_bench", reads="reply")
}
"""Description, example and query of a task, each on a separate line; its verifier reads the answer."""
