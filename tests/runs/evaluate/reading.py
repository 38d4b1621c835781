"""A scripted grader that extracts and compares answers, and the resulting scores."""

import json
import re
from typing import Any

from vtune.protocols import charxiv_descriptive
from vtune.protocols.readers import COMPARE_SYSTEM, EXTRACT_SYSTEM

EXTRACTS = {
    "It must be the green one, I think, as it is long": "B",
    "three": "3",
    "about 1.5 m": "1.5",
    "2007 to 2008": "[2007, 2008]",
    "It is 4": "4",
    "so it is a half": "\\frac{1}{2}",
}
"""Reply -> the answer in it; any other reply is itself the answer."""
RIGHT = {("B", "4"), ("12 cm^2", "0.0012 m^2")}
"""(truth, answer) pairs with the same meaning."""
SCORES = {"The curve is P-101": 1, "0.5": 1, "There is no title": 1, "4": 1}

# suite -> its replies; protocol -> (score, unreadable) with this grader
JUDGED: dict[str, tuple[list[str], dict[str, tuple[float, int]]]] = {
    # Truths: green, 3, 1.5, [2007, 2008].
    "mathvista": (
        ["It must be the green one, I think, as it is long", "three", "about 1.5 m", "2007 to 2008"],
        {
            "vtune": (0.0, 3),
            "official": (1.0, 0),
            "lmms-eval": (1.0, 0),
            "vlmevalkit": (3 / 4, 0),
            "paper": (3 / 4, 0),
        },
    ),
    # Truths: B twice, 12 cm^2.
    "mathverse": (
        ["It is 4", "B", "0.0012 m^2"],
        {
            "vtune": (1 / 3, 1),
            "official": (1.0, 0),
            "vlmevalkit": (1.0, 0),
            "lmms-eval": (2 / 3, 0),
            "paper": (1.0, 0),
        },
    ),
    # Truths: B, B (4), \frac{1}{2}.
    "mathvision": (
        ["B", "is 4.", "so it is a half"],
        {"vtune": (2 / 3, 1), "lmms-eval": (2 / 3, 0), "vlmevalkit": (1.0, 0)},
    ),
    # Truths: P-101, 0.50.
    "charxiv-reasoning": (
        ["The curve is P-101", "0.5"],
        {"vtune": (1 / 2, 0), "official": (1.0, 0), "vlmevalkit": (1.0, 0), "paper": (1.0, 0)},
    ),
    # Truths: Not Applicable, 4.
    "charxiv-descriptive": (
        ["There is no title", "4"],
        {"vtune": (1 / 2, 0), "official": (1.0, 0), "vlmevalkit": (1.0, 0)},
    ),
}


def reads(body: dict[str, Any]) -> str:
    """The model's reply to a request."""
    *system, user = body["messages"]
    text = user["content"][0]["text"]
    if not system:
        said = text.rpartition("* Response: ")[2].strip()
        return json.dumps({"extracted_answer": said, "score": SCORES.get(said, 0)})
    if system[0]["content"].startswith(charxiv_descriptive.SYSTEM):
        return json.dumps(grades(text))
    if system[0]["content"].startswith(EXTRACT_SYSTEM):
        said = json.loads(text.rpartition("\n\nReply: ")[2])
        return EXTRACTS.get(said, said)
    assert system[0]["content"].startswith(COMPARE_SYSTEM)
    truth, given = (json.loads(part) for part in re.findall(r'(?:answer|Answer): (".*")', text))
    return str(int((truth, given) in RIGHT or truth == given))


def grades(text: str) -> dict[str, Any]:
    """The model's grades of several answers: right if equal to the truth or listed in `RIGHT`."""
    found: dict[str, Any] = {}
    for n, given, truth in re.findall(r'T(\d+):\nResponse \1: (".*")\nGround Truth \1: (".*")', text):
        said = json.loads(given)
        right = said == json.loads(truth) or bool(SCORES.get(said))
        found |= {f"extract_answer_T{n}": said, f"score_T{n}": int(right and bool(said))}
    return found
