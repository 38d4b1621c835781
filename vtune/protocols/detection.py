"""Detection over a set of pictures: asked as the data ask, and scored by the authors' evaluation.

COCO's is pycocotools, OVDEval's its released eval.py: the scorers `coco` and `ovdeval`, which suites name.
Neither specifies how to word the question; the wording in the suites' data is V-Triune's.
"""

from vtune.protocols import vtune as ours
from vtune.protocols.protocol import Rule

DETECTION = Rule(ask=None, grade=ours.grade, by="verifier", scorer=None, reads="reply")
