"""What the papers report doing: tables 3 to 5 of CodeV, table 3 of V-Triune, table 1 of Dong et al.

CodeV evaluates with a fork of VLMEvalKit on the content of `<answer>`; V-Triune's CountBench is
VLMEvalKit's too, its ScreenSpot-Pro, COCO and OVDEval are the authors', its OCRBench v2 is lmms-eval's. Where
a judge reads what no rule can, the papers' scores are higher.
"""

from vtune.protocols import PROTOCOLS, charxiv, mathverse, mathvision, mathvista, points, readings
from vtune.protocols.detection import DETECTION
from vtune.protocols.protocol import Protocol
from vtune.protocols.short_answers import PAPER
from vtune.protocols.vlmevalkit import BLIND_RULE, CHOICE, COUNT, MMMU, REALWORLD

PROTOCOLS.add(
    "paper",
    Protocol(
        about="CodeV (its perception and maths benchmarks), V-Triune (CountBench, OCRBench v2, "
        "ScreenSpot-Pro, COCO, OVDEval), Dong et al. (search)",
        rules={
            "vstar": CHOICE,
            "hrbench": CHOICE,
            "mme_realworld": REALWORLD,
            "vlmblind": BLIND_RULE,
            "count": COUNT,
            "screenspot_pro": points.OFFICIAL,
            "coco_set": DETECTION,
            "ovdeval": DETECTION,
            "ocrbench_v2": readings.LMMS,
            **readings.MEGA_BENCH,
            "mmmu": MMMU,
            "mathvista": mathvista.KIT,
            "mathverse": mathverse.KIT,
            "mathvision": mathvision.KIT,
            "charxiv_reasoning": charxiv.RULE,
            "charxiv_descriptive": charxiv.RULE,
            **PAPER,
        },
    ),
)
