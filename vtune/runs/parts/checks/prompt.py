"""What a prompt style promises."""

import pickle
from dataclasses import dataclass, replace

from vtune.rollout.prompts import STYLES
from vtune.runs.parts.checks.check import SIDES, Broken, Check, in_time, question, quickest, tried
from vtune.runs.parts.checks.verifier import INLINE, TIMES
from vtune.schema.message import IMAGE, Message
from vtune.schema.sample import Sample
from vtune.tools.tool import function

DRAWS = 8
"""Number of draws in which the words may differ; ours."""
QUESTION = "Which one?"
"""The question in each test sample."""
SCHEMA = function("check_tool", "Show a part of the picture.", {"part": {"type": "string"}}, ["part"])
"""A tool that the style may mention."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A style, tested on small samples."""

    name: str

    def sample(self, pictures: int, *, offered: bool = False) -> Sample:
        """A question about some pictures."""
        plain = question()
        return replace(
            plain,
            prompt=(Message("user", f"{IMAGE * pictures}\n{QUESTION}"),),
            images=plain.images * pictures,
            tools=("check_tool",) if offered else (),
        )

    def turns(self, pictures: int, *, offered: bool = False, draw: int = 0) -> tuple[Message, ...]:
        names = [f"image_{number}.png" for number in range(pictures)]
        sample = self.sample(pictures, offered=offered)
        found = STYLES[self.name].turns(sample, names, [SIDES] * pictures, [SCHEMA] if offered else [], draw)
        if sample != self.sample(pictures, offered=offered):
            raise Broken("the style changed the sample", "copy what you change")
        if not isinstance(found, tuple) or not all(isinstance(turn, Message) for turn in found):
            raise Broken(f"the style returns {type(found).__name__}", "return a tuple of Message")
        return found

    def becomes(self) -> str:
        first, again = self.turns(1), self.turns(1)
        if first != again:
            raise Broken(
                "the same sample gives different turns the second time", "use no randomness but `draw`"
            )
        if not first or first[-1].role != "user":
            raise Broken(
                f"the last turn is of {first[-1].role if first else 'nobody'}", "end with the user's"
            )
        return f"{len(first)} turn(s)"

    def shows(self) -> str:
        for pictures in range(3):
            marks = sum(turn.content.count(IMAGE) for turn in self.turns(pictures))
            if marks != pictures:
                raise Broken(
                    f"{marks} {IMAGE} mark(s) for {pictures} picture(s)", "keep the sample's own marks"
                )
        return "of none, one and two"

    def asks(self) -> str:
        for offered in (False, True):
            if not any(QUESTION in turn.content for turn in self.turns(1, offered=offered)):
                raise Broken(f"no turn has {QUESTION!r}", "keep the text of the sample's turns")
        return "with a tool and without"

    def draws(self) -> str:
        found = [self.turns(1, draw=draw) for draw in range(DRAWS)]
        several = any(turns != found[0] for turns in found)
        if several and not STYLES[self.name].draws:
            raise Broken("turns depend on `draw`", "say draws=True, or leave `draw` alone")
        if not several and STYLES[self.name].draws:
            raise Broken(f"{DRAWS} draws give the same turns", "leave draws=True out, or let `draw` decide")
        for turns in found:
            if not any(QUESTION in turn.content for turn in turns):
                raise Broken(f"no turn has {QUESTION!r} in some draws", "keep the text of the sample's turns")
        return f"{DRAWS} draws {'differ' if several else 'are alike'}"

    def elsewhere(self) -> str:
        found = self.turns(1)
        if pickle.loads(pickle.dumps(found)) != found:
            raise Broken("turns are different after pickling", "return plain messages")
        return "the turns can be sent"

    def fast(self) -> str:
        most = "do only once, when the file is loaded, what is the same for all samples"
        return in_time(quickest(TIMES, lambda: self.turns(1, offered=True)), INLINE, "a sample", most)


def check_prompt(name: str) -> list[Check]:
    """It yields turns with the sample's pictures and question, the user's last, and the same every time."""
    trial = _Trial(name)
    return [
        tried("a sample becomes turns", trial.becomes),
        tried("all pictures are in the turns", trial.shows),
        tried("the question is in the turns", trial.asks),
        tried("`draws` says whether words vary", trial.draws),
        tried("turns cross processes", trial.elsewhere),
        tried("fast enough", trial.fast),
    ]
