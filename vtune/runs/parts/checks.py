"""What a part of each kind promises, tried on small examples: the contract of `vtune parts check`."""

import asyncio
import io
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from vtune.curate.item import Item
from vtune.curate.own import FILTERS, settings_of
from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError
from vtune.metrics.benchmarks import SCORERS, Mark
from vtune.rollout.prompts import STYLES
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.tools import TOOLS
from vtune.tools.calls import Asked
from vtune.tools.observation import IMAGE_MARK, Observation
from vtune.tools.once import Once
from vtune.tools.tool import Scene, View
from vtune.tools.toolbox import Toolbox
from vtune.verifiers import VERIFIERS, Verifier
from vtune.verifiers.verifying import SLICE, Verifying

INLINE = 0.005
"""Seconds of a verdict at most where a verifier is not `in_worker`, ours: a loop of rollouts waits for it."""
SLOWEST_TOOL = 10.0
"""Seconds of a call at most, ours."""
TIMES = 20
"""Verdicts over which the time is averaged."""
ODD = ("", "<answer></answer>", "<answer>", "I do not know.", "</answer><answer>", "\x00\ud800")
"""Replies without an answer."""
SIDES = (64, 48)
"""Width and height of the picture that tools are tried on."""


_SHOWN = Sample(
    id="check/1",
    source="check",
    prompt=(Message("user", f"{IMAGE}\nWhich one?"),),
    images=(Picture(data=b""),),
    ground_truth="A",
    verifier="",
)
"""A question about a picture."""


@dataclass(frozen=True, slots=True)
class Check:
    """A promise, and whether it is kept."""

    name: str
    ok: bool
    found: str
    """What was measured, or what is wrong."""


class _Broken(Exception):
    """A promise that is not kept, in words."""


@dataclass(frozen=True, slots=True)
class _VerifierTrial:
    """A verifier, and the example that it brings."""

    verifier: Verifier
    sample: Sample

    @property
    def gold(self) -> str:
        """A right reply."""
        return f"<think>Let me see.</think><answer>{self.verifier.case.gold}</answer>"

    @property
    def wrong(self) -> str:
        """A reply that earns nothing."""
        return f"<answer>{self.verifier.case.wrong}</answer>"

    def full_marks(self) -> str:
        self.verifier.check_ground_truth(self.sample)
        return _expect(self.verifier.verify(self.gold, self.sample), 1.0)

    def nothing(self) -> str:
        for reply in ODD:
            _expect(self.verifier.verify(reply, self.sample), 0.0, f"reply {reply!r}")
        if self.verifier.verify("", self.sample).parts.get("unreadable") != 1.0:
            raise _Broken('the verdict on an empty reply has no part "unreadable" of 1: see `unreadable`')
        return f"{len(ODD)} replies score 0"

    def wrong_answer(self) -> str:
        if self.verifier.asks_judge:
            return "a model decides"
        return _expect(self.verifier.verify(self.wrong, self.sample), 0.0)

    def broken_gold(self) -> str:
        bad = replace(self.sample, ground_truth=self.verifier.case.broken_gold)
        for what, run in (
            ("check_ground_truth", lambda: self.verifier.check_ground_truth(bad)),
            ("verify", lambda: self.verifier.verify(self.gold, bad)),
        ):
            try:
                run()
            except DataError:
                continue
            raise _Broken(f"{what} takes the ground truth {bad.ground_truth!r}: raise DataError")
        return "DataError"

    def unknown_option(self) -> str:
        odd = replace(self.sample, verifier_parm={**self.sample.verifier_parm, "no such option": 1})
        try:
            self.verifier.check_ground_truth(odd)
        except DataError:
            return "DataError"
        raise _Broken("an unknown key of verifier_parm passes: read the options with `options(sample, {…})`")

    def scores(self) -> str:
        texts = [*ODD, self.gold, f"<answer>{self.verifier.case.gold[:-1]}</answer>", self.wrong]
        if self.verifier.asks_judge:
            texts = [*ODD, self.gold]
        found = [self.verifier.verify(text, self.sample).score for text in texts]
        between = [score for score in found if 0.0 < score < 1.0]
        if between and not self.verifier.partial_credit:
            raise _Broken(f"a score is {between[0]:.3g}: say partial_credit=True, or give 0 or 1")
        return "partial credit" if self.verifier.partial_credit else "0 or 1"

    def elsewhere(self) -> str:
        _expect(pickle.loads(pickle.dumps(self.verifier.verify(self.gold, self.sample))), 1.0)
        if not self.verifier.in_worker:
            return "the verdict can be sent"

        async def asked() -> Verdict:
            async with Verifying(workers=1) as verifying:
                return await verifying.verify(self.gold, self.sample)

        return f"{_expect(asyncio.run(asked()), 1.0)}, from a worker"

    def fast(self) -> str:
        most = SLICE if self.verifier.in_worker else INLINE
        began = time.perf_counter()
        for _ in range(TIMES):
            self.verifier.verify(self.gold, self.sample)
        return _in_time((time.perf_counter() - began) / TIMES, most, "a reply", "say in_worker=True")


def check_verifier(name: str) -> list[Check]:
    """Its case: gold, no answer, a wrong one, a broken truth; and that it is fast (main thread only)."""
    verifier = VERIFIERS[name]
    case = verifier.case
    sample = Sample(
        id="check/1",
        source="check",
        prompt=(Message("user", "Which one?"),),
        ground_truth=case.gold if case.truth is None else case.truth,
        verifier=name,
        verifier_parm=dict(case.parm),
        choices=case.choices,
    )
    trial = _VerifierTrial(verifier, sample)
    return [
        _tried("the gold answer earns full marks", trial.full_marks),
        _tried("no answer earns nothing", trial.nothing),
        _tried("a wrong answer earns nothing", trial.wrong_answer),
        _tried("a broken ground truth is an error", trial.broken_gold),
        _tried("an unknown option is an error", trial.unknown_option),
        _tried("scores are as it says", trial.scores),
        _tried("a verdict crosses processes", trial.elsewhere),
        _tried("fast enough", trial.fast),
    ]


def check_tool(name: str) -> list[Check]:
    """It opens, answers the call of its example, and tells the model what it did wrong."""
    seconds: list[float] = []

    def called(arguments: Mapping[str, Any] | None) -> Observation:
        if arguments is None:
            raise _Broken("give ToolPart an `example`: arguments of a call that any picture allows")
        found = asyncio.run(_called(name, arguments))
        seconds.append(found.seconds)
        return found

    def answers() -> str:
        found = called(TOOLS[name].example)
        if found.status != "ok":
            raise _Broken(f"the call of its example ends as {found.status}: {found.error}")
        marks = found.text.count(IMAGE_MARK)
        if marks != len(found.images):
            raise _Broken(f"its text has {marks} {IMAGE_MARK} for {len(found.images)} picture(s)")
        shown = ", ".join("{}x{}".format(*size_of(image)) for image in found.images)
        return f"{len(found.text)} characters" + (f", pictures {shown}" if shown else "")

    def refuses() -> str:
        found = called({"no such argument": 1})
        if found.status != "error":
            raise _Broken(f"an unknown argument ends as {found.status}: raise Mistake (see `check_names`)")
        return found.error

    return [
        _tried("it opens and answers a call", answers),
        _tried("bad arguments are the model's mistake", refuses),
        _tried("fast enough", lambda: _in_time(max(seconds, default=0.0), SLOWEST_TOOL, "a call", "")),
    ]


async def _called(name: str, arguments: Mapping[str, Any]) -> Observation:
    """What comes of a call about a picture."""
    part = TOOLS[name]
    if part.opened is None:
        raise _Broken("`opened` is None: only vtune's own `python` takes code")
    out = io.BytesIO()
    Image.linear_gradient("L").resize(SIDES).convert("RGB").save(out, "PNG")
    scene = Scene(_SHOWN, (out.getvalue(),), (View(out.getvalue(), 0, None, SIDES),))
    section: object = {} if part.recipe is None else part.recipe()
    with tempfile.TemporaryDirectory() as folder:
        async with part.opened(section, Path(folder) / "record.jsonl") as tool:
            if tool.schema["function"]["name"] != name:
                raise _Broken(f"its schema is called {tool.schema['function']['name']!r}")
            return await Toolbox({name: tool}).run(Asked(name, arguments, "", 0), scene, 0, Once())


def check_scorer(name: str) -> list[Check]:
    """All right is 1, all wrong is 0, and what nobody could score has no score."""

    def score(right: float | None, wanted: float | None) -> Callable[[], str]:
        extra = {"category": "single", "cycle_category": "0"}
        marks = [Mark(f"check/{n}", extra, right, unreadable=False, source="check") for n in range(4)]

        def run() -> str:
            found = SCORERS[name](marks).get("score")
            if found != wanted:
                raise _Broken(f"`score` is {found}, not {wanted}")
            return f"`score` is {found}"

        return run

    return [
        _tried("all right is 1", score(1.0, 1.0)),
        _tried("all wrong is 0", score(0.0, 0.0)),
        _tried("what nobody scored has no score", score(None, None)),
    ]


def check_prompt(name: str) -> list[Check]:
    """Turns with the sample's pictures, the user's last, and the same again."""

    def run() -> str:
        first, again = (STYLES[name].turns(_SHOWN, ["image_0.png"], [SIDES], (), 0) for _ in range(2))
        if first != again:
            raise _Broken("the same sample gives other turns the second time")
        marks = sum(turn.content.count(IMAGE) for turn in first)
        if marks != 1 or first[-1].role != "user":
            raise _Broken(f"{marks} {IMAGE} mark(s) for 1 picture, and the last turn is of {first[-1].role}")
        return f"{len(first)} turn(s)"

    return [_tried("a sample becomes turns", run)]


def check_format(name: str) -> list[Check]:
    """The rows of its specimen can be read."""
    layout = FORMATS[name]

    def run() -> str:
        if layout.specimen is None:
            raise _Broken("give Format a `specimen` that writes a few rows into a folder")
        with tempfile.TemporaryDirectory() as folder:
            found = layout.specimen(Path(folder))
            entries = [entry for _, entry in layout.read(found.path, Options(images=found.images))]
        for entry in entries:
            if isinstance(entry, DataError):
                raise _Broken(str(entry))
        if not entries:
            raise _Broken("no row was read")
        return f"{len(entries)} {layout.makes}"

    return [_tried("the rows of its specimen are read", run)]


def check_filter(name: str) -> list[Check]:
    """It keeps the row that it says it keeps, and drops the other, with a reason."""
    part = FILTERS[name]

    def reason(values: Mapping[str, Any]) -> str | None:
        item = Item(replace(_SHOWN, **values), "check", Path())
        return part.rule(settings_of(part, part.example), item)

    def keeps() -> str:
        why = reason(part.keeps)
        if why is not None:
            raise _Broken(f"it drops the row of `keeps`: {why}")
        return "kept"

    def drops() -> str:
        why = reason(part.drops)
        if not isinstance(why, str) or not why:
            raise _Broken(f"it gives {why!r} for the row of `drops`: give the reason as a text")
        return why

    return [_tried("a good row passes", keeps), _tried("a bad row is dropped with a reason", drops)]


def _expect(verdict: Verdict, wanted: float, of: str = "it") -> str:
    if verdict.score != wanted:
        raise _Broken(f"{of} scores {verdict.score:.3g}, not {wanted:g}: {verdict.why}")
    return f"{verdict.score:g}"


def _in_time(seconds: float, most: float, of: str, fix: str) -> str:
    told = f"{seconds * 1000:.3g} ms for {of}, {most * 1000:g} ms at most"
    if seconds > most:
        raise _Broken(f"{told}: {fix}" if fix else told)
    return told


def _tried(name: str, run: Callable[[], str]) -> Check:
    try:
        return Check(name, True, run())
    except _Broken as broken:
        return Check(name, False, str(broken))
    except Exception as error:  # noqa: BLE001 - a user's part may raise anything: it is reported
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Check(
            name, False, f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
        )
