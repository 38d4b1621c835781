"""What a prompt style promises."""

from vtune.rollout.prompts import STYLES
from vtune.runs.parts.checks.check import SHOWN, SIDES, Broken, Check, tried
from vtune.schema.message import IMAGE


def check_prompt(name: str) -> list[Check]:
    """Turns with the sample's pictures, the user's last, and the same again."""

    def run() -> str:
        first, again = (STYLES[name].turns(SHOWN, ["image_0.png"], [SIDES], (), 0) for _ in range(2))
        if first != again:
            raise Broken("the same sample gives other turns the second time")
        marks = sum(turn.content.count(IMAGE) for turn in first)
        if marks != 1 or first[-1].role != "user":
            raise Broken(f"{marks} {IMAGE} mark(s) for 1 picture, and the last turn is of {first[-1].role}")
        return f"{len(first)} turn(s)"

    return [tried("a sample becomes turns", run)]
