"""One join: what is written, what is read, and whether the two fit in everything that samples carry."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from vtune.environments import DEFAULT, name_of
from vtune.errors import VtuneError
from vtune.reward.checking import check_evidence, check_samples
from vtune.reward.combining import weights_of
from vtune.reward.evidence import needs_look
from vtune.reward.format import form_of
from vtune.reward.recipe import JUDGES, RewardRecipe
from vtune.rollout.prompts import STYLES
from vtune.rollout.recipe import Rollout
from vtune.runs.agent.tools import ToolsRecipe, check_tools, sections_of
from vtune.runs.recipes.chain.policies import Asked, accuracy, asked, form
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.tools import TOOLS
from vtune.verifiers import verifier_of
from vtune.verifiers.perfect import ROUNDING, provable

Level = Literal["ok", "note", "break"]


@dataclass(frozen=True, slots=True)
class Join:
    """One thing that one recipe or command writes and another reads."""

    writer: str
    reader: str
    about: str
    written: str
    read: str
    level: Level = "ok"
    """`note`: it runs, but may not be what the author intended."""
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """A recipe that puts samples to a policy and scores its replies."""

    name: str
    rollout: Rollout
    tools: ToolsRecipe | None
    reward: RewardRecipe
    taught: Sequence[Trajectory] = ()
    """Traces of the policy's cold start; empty if it is the model as published."""
    cold_start: str = ""
    """The recipe that taught them."""
    offered: frozenset[str] = frozenset()
    """Tools that its samples offer, including samples of other writers."""
    random: bool = False
    """Its weights are random and it had no cold start: it cannot follow any prompt."""


class Edge:
    """The samples of one writer, checked against one reader."""

    def __init__(self, writer: str, reader: Reader, samples: Sequence[Sample]) -> None:
        self._writer = writer
        self._reader = reader
        self._samples = samples
        self._ours = [sample for sample in samples if name_of(sample) == DEFAULT]
        """Samples without a user's own environment: only that environment knows how it is answered."""

    def joins(self) -> Iterator[Join]:
        """Tools, prompt, format, verifiers, weights and looks, in this order."""
        yield from self._tools()
        posed = self._posed()
        if isinstance(posed, Join):
            yield posed
        else:
            yield from map(self._of_random, (self._prompt(posed), self._format(posed)))
        yield from self._environments()
        yield self._verifiers()
        yield self._weights()
        yield self._looks()

    def _join(
        self, about: str, written: str, read: str, level: Level = "ok", why: str = "", fix: str = ""
    ) -> Join:
        return Join(self._writer, self._reader.name, about, written, read, level, why, fix)

    def _tried(self, about: str, written: str, read: str, check: Callable[[], object]) -> Join:
        """A join that is decided by running the code of a run."""
        try:
            check()
        except VtuneError as error:
            why = f"{error.what} ({error.where})" if error.where else error.what
            return self._join(about, written, read, "break", why, error.fix)
        return self._join(about, written, read)

    def _tools(self) -> Iterator[Join]:
        reader = self._reader
        style = reader.rollout.prompt
        runs = [part.section or name for name, part, _ in sections_of(reader.tools)]
        mentioned = [tool for tool in TOOLS if STYLES[style].tells_of(tool)]
        tells = listed(mentioned) if len(mentioned) < len(TOOLS) else "all tools on offer"
        read = f"prompt {style} mentions {tells}; besides code, the recipe opens {listed(runs)}"
        written = by_source(self._samples, lambda sample: listed(sample.tools))

        def check() -> None:
            check_tools(self._samples, reader.tools, style)

        found = self._tried("tools", written, read, check)
        yield found
        if found.level == "ok":
            yield from self._turns(written)
        yield from self._lost(written)
        offered = reader.offered.union(*(sample.tools for sample in self._samples))
        if self._samples and not offered and runs:
            why = f"the recipe opens {listed(runs)}, which no sample offers"
            yield self._join("tools", written, listed(runs), "note", why, "remove this section from `tools`")

    def _turns(self, written: str) -> Iterator[Join]:
        turns = self._reader.rollout.max_turns
        if turns == 1 and any(sample.tools for sample in self._samples):
            why = "rollout.max_turns is 1: after a tool call no turn is left for the answer"
            fix = "raise rollout.max_turns, or let the samples offer no tool"
            yield self._join("turns", written, "max_turns 1", "break", why, fix)

    def _lost(self, written: str) -> Iterator[Join]:
        """Tools that the cold start taught but samples do not offer."""
        taught = sorted({call.tool for trace in self._reader.taught for call in trace.calls})
        if not taught:
            return
        without = [sample for sample in self._ours if not set(taught) & set(sample.tools)]
        read = f"{self._reader.cold_start} taught {listed(taught)}"
        if not without:
            yield self._join("taught tools", written, read)
            return
        sources = listed(sorted({sample.source for sample in without}))
        why = f"rows of {sources} offer no tool that the cold start taught the policy to call"
        fix = f"`tools: [{', '.join(taught)}]` of the source in the data recipe, `--tools` of the import, or "
        fix += "`offers` of the suite"
        yield self._join("taught tools", written, read, "break", why, fix)

    def _posed(self) -> list[Asked] | Join:
        """All samples in the reader's prompt; those that differ only in their source are put once."""
        reader = self._reader
        different = {(s.question, s.verifier, s.ground_truth, s.tools, s.format_ratio): s for s in self._ours}
        try:
            return [one for s in different.values() for one in asked(s, reader.rollout.prompt, reader.taught)]
        except VtuneError as error:
            return self._join("prompt", "", reader.rollout.prompt, "break", error.what, error.fix)

    def _of_random(self, join: Join) -> Join:
        """What the prompt leaves out is no break if the policy could not follow it anyway."""
        if join.level != "break" or not self._reader.random:
            return join
        why = f"the policy has random weights and no cold start: {join.why}"
        return replace(join, level="note", why=why, fix="train a cold start first: `vtune sft`")

    def _prompt(self, posed: Sequence[Asked]) -> Join:
        reader = self._reader
        join = prompt_join(self._writer, reader.name, reader.rollout.prompt, posed, reader.cold_start)
        if join.level != "ok" or not posed:
            return join
        taught = {_system(trace.messages) for trace in reader.taught}
        # Traces without a system turn, such as Thyme's, hold their instructions in the question.
        if not taught or "" in taught or taught & {_system(one.turns) for one in posed}:
            return join
        why = f"the traces of {reader.cold_start} begin with a system turn that is not in this prompt"
        fix = "the rollout.prompt that the traces were made with (`vtune data make traces --prompt`), or "
        fix += "traces made with this one"
        return replace(join, level="note", why=why, fix=fix)

    def _format(self, posed: Sequence[Asked]) -> Join:
        """Check the forms that the cold start taught and that the prompt asks for, by the format rule."""
        reward = self._reader.reward
        rule = f"format_rule {reward.format_rule}"
        said = [(one.sample.source, found) for one in posed if (found := form(one, reward)) is not None]
        if not said:
            return self._join("format", "not rewarded", rule)
        written = "replies as the prompt asks"
        verdicts = [("the prompt", verdict) for _, verdict in said]
        if self._reader.taught:
            written += f", and traces of {self._reader.cold_start}"
            verdicts += [("the cold start", form_of(trace, reward)) for trace in self._reader.taught]
        for who, verdict in verdicts:
            if verdict.score < 1 - ROUNDING:
                why = f"a reply written as {who} says earns {verdict.score:g}: {verdict.why}"
                fix = "reward.format_rule: `ordered` takes one <think> around all code and one in each turn, "
                fix += "`counted` takes one pair in the whole reply; or use another rollout.prompt"
                return self._join("format", written, rule, "break", why, fix)
        return self._join("format", written, rule)

    def _environments(self) -> Iterator[Join]:
        """Rows with a user's own environment, if the format rule only knows the tags of our tools."""
        asked = [sample for sample in self._samples if name_of(sample) != DEFAULT]
        paid = [sample for sample in asked if weights_of(sample, self._reader.reward).format]
        if not asked:
            return
        written = listed(sorted({name_of(sample) for sample in asked}))
        if not paid:
            yield self._join("environment", written, "no format is rewarded")
            return
        rule = f"format_rule {self._reader.reward.format_rule}"
        why = f"rows of {listed(sorted({sample.source for sample in paid}))} reward the tags of our tools"
        fix = "reward.format: 0.0, or reward.weighting: sample with a format_ratio of 0 in these rows; "
        fix += "no change is needed if the environment itself asks for these tags"
        yield self._join("environment", written, rule, "note", why, fix)

    def _verifiers(self) -> Join:
        reward = self._reader.reward
        written = counted(sample.verifier for sample in self._samples)
        judge = "none" if reward.judge is None else reward.judge.model
        iou = "none" if reward.iou is None else reward.iou.schedule
        read = f"judge {judge}; IoU {iou}"
        join = self._tried("verifiers", written, read, lambda: check_samples(self._samples, reward))
        idle = reward.iou is not None and not any(verifier_of(s).reads_iou for s in self._samples)
        if join.level == "ok" and idle:
            why = "no verifier of these samples reads an IoU threshold"
            return self._join("verifiers", written, read, "note", why, "set reward.iou to null")
        return join

    def _weights(self) -> Join:
        """Whether every row rewards its answer, and a row that rewards calls offers any."""
        reward = self._reader.reward
        weights = [(sample, weights_of(sample, reward)) for sample in self._samples]
        written = by_source(self._samples, lambda s: _ratios(s.accuracy_ratio, s.format_ratio, s.tool_ratio))
        own = _ratios(reward.accuracy, reward.format, reward.tool)
        read = f"weighting {reward.weighting}" + (f": {own}" if reward.weighting == "recipe" else "")
        for sample, weight in weights:
            if not weight.accuracy:
                why = f"rows of {sample.source} give no reward for the answer"
                fix = "reward.weighting: recipe, or an accuracy_ratio above 0 in the rows"
                return self._join("weights", written, read, "break", why, fix)
        paid = [sample for sample, weight in weights if weight.tool and name_of(sample) == DEFAULT]
        if paid and not any(sample.tools for sample in paid):
            why = f"{len(paid)} of {len(weights)} rows reward what calls show, but none offers a tool"
            fix = "`tools` of the sources in the data recipe, or reward.tool: 0.0 (tool_ratio of the rows)"
            return self._join("weights", written, read, "break", why, fix)
        return self._join("weights", written, read)

    def _looks(self) -> Join:
        """What judges the pictures that calls show."""
        reward = self._reader.reward
        offering = [sample for sample in self._samples if sample.tools and name_of(sample) == DEFAULT]
        looked = [sample for sample in offering if needs_look(sample, reward.evidence)]
        boxes = sum(bool(sample.evidence) for sample in looked)
        written = f"{len(looked)} of {len(offering)} rows with tools need a look, {boxes} have boxes"
        names = (*reward.evidence.search_abilities, *reward.evidence.search_sources)
        read = f"{judged_by(reward)}; looks at {listed(names)}"
        if any(weights_of(sample, reward).tool for sample in offering):

            def check() -> None:
                check_evidence(check_samples(self._samples, reward))

            found = self._tried("looks", written, read, check)
            there = {name for sample in offering for name in (sample.ability, sample.source)}
            absent = [name for name in names if name not in there]
            if found.level == "ok" and absent:
                why = f"no row here is of {listed(absent)}, whose calls would be rewarded"
                fix = "see the names in reward.evidence.search_abilities and search_sources; rows have the "
                fix += "name of their source in the data recipe, unless it sets `rename: false`"
                return self._join("looks", written, read, "note", why, fix)
            return found
        return self._join("looks", written, f"{read}; not rewarded")


def prompt_join(writer: str, reader: str, style: str, posed: Sequence[Asked], cold_start: str = "") -> Join:
    """Whether a policy that knows the truth, and does only what it is asked, is scored as right."""
    tags = sorted({mark for one in posed for mark in one.tags})
    where = f"as {cold_start} taught" if STYLES[style].bare and cold_start else "as it asks"
    read = f"prompt {style}: answers {where}, in {listed(tags)}"
    places = {(one.sample.verifier, str(one.sample.verifier_parm.get("answer_in") or "tag")) for one in posed}
    written = listed([f"{verifier} reads {place}" for verifier, place in sorted(places)])
    for one in posed:
        if not provable(one.sample):
            continue  # this cannot be tested here
        try:
            verdict = accuracy(one)
        except VtuneError as error:
            return Join(writer, reader, "prompt", written, read, "break", error.what, error.fix)
        if verdict.score < 1 - ROUNDING:
            why = f"a right answer in the form that the prompt asks for earns {verdict.score:g} with "
            why += f"verifier {one.sample.verifier} ({one.sample.source}): {verdict.why}"
            return Join(writer, reader, "prompt", written, read, "break", why, _asking_right(one))
    return Join(writer, reader, "prompt", written, read)


def _asking_right(one: Asked) -> str:
    """The remedy for a prompt that does not ask for what its verifier reads."""
    if "\\boxed" in one.tags and "<answer>" not in one.tags:
        # A prompt style would ask for other tags, and the question would contradict it.
        return (
            "these questions ask for \\boxed{} themselves: put `answer_in: boxed` in their "
            "verifier_parm, as an import of `verl` and `vtriune` does; or import them with --tools "
            "(`none` for no tool), which removes these words from published prompts that it knows"
        )
    return (
        "any rollout.prompt but `plain` asks for what verifiers read; `plain` needs a cold start (yours is "
        "found by a comment `#   vtune sft …` whose `--out` is where `model` lies), or questions that say it "
        "themselves, as an import of boxes writes them"
    )


def _system(turns: Sequence[Message]) -> str:
    """The system turn that a conversation begins with; empty if there is none."""
    return turns[0].content.strip() if turns and turns[0].role == "system" else ""


def judged_by(reward: RewardRecipe) -> str:
    """What judges the pictures that calls show, in words."""
    if reward.evidence.judges != JUDGES:
        return listed(reward.evidence.judges)
    return f"boxes, or {'no judge' if reward.judge is None else reward.judge.model}"


def listed(names: Sequence[str] | Any) -> str:
    """Names as shown in a table cell."""
    return ", ".join(names) or "nothing"


def counted(names: Any) -> str:
    """Names, each once, in order of appearance."""
    return listed(list(Counter(names)))


def calls_of(traces: Sequence[Trajectory]) -> str:
    """How many calls each trace has, and of which tools, e.g. "0 or 1 calls per trace, of python"."""
    counts = sorted({len(trace.calls) for trace in traces})
    if counts in ([], [0]):
        return "no calls"
    number = f"{counts[0]} to {counts[-1]}" if len(counts) > 2 else " or ".join(map(str, counts))
    tools = sorted({call.tool for trace in traces for call in trace.calls})
    return f"{number} {'call' if counts == [1] else 'calls'} per trace, of {listed(tools)}"


def by_source(samples: Sequence[Sample], tell: Callable[[Sample], str]) -> str:
    """A description of samples, with the sources of each variant if they differ."""
    found: dict[str, list[str]] = {}
    for sample in samples:
        sources = found.setdefault(tell(sample), [])
        if sample.source not in sources:
            sources.append(sample.source)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{what} ({_short(sources)})" for what, sources in found.items())


def _short(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _ratios(accuracy: float, form: float, tool: float) -> str:
    return f"{accuracy:g} / {form:g} / {tool:g}"
