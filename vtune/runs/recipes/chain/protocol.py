"""Joins of a policy and a benchmark, calls and an audit, traces and a cold start."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vtune.advantage.recipe import Credit
from vtune.advantage.tool_types import tool_types
from vtune.errors import VtuneError
from vtune.reward.evidence import judge_of, needs_look
from vtune.reward.recipe import RewardRecipe
from vtune.rollout.transcript import check_trace
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.recipes.chain.file_joins import broken
from vtune.runs.recipes.chain.joins import Join, calls_of, judged_by, listed
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy that a run leaves behind: its name, and what it has learnt."""

    name: str
    tools: frozenset[str] = frozenset()
    """Tools that it was trained to call."""
    taught: tuple[Trajectory, ...] = ()
    """Traces of its cold start."""
    cold_start: str = ""
    """The recipe that taught them."""
    prompt: str | None = None
    """Prompt that it was trained with; None if the traces contain it."""
    max_turns: int | None = None


def traces_join(writer: str, reader: str, file: str, traces: Sequence[Trajectory]) -> Join:
    """Whether a cold start can learn from traces."""
    for trace in traces:
        try:
            check_trace(trace, where=f"trace of {trace.sample_id!r}")
        except VtuneError as error:
            return broken(writer, reader, "traces", file, error)
    return Join(writer, reader, "traces", calls_of(traces), "turns of the assistant, an answer at the end")


def protocol_joins(policy: Policy, suite: EvalSuite, name: str, samples: Sequence[Sample]) -> Iterator[Join]:
    """Whether a benchmark offers what the policy was trained to call, in the prompt that it knows."""
    offered = {tool for sample in samples for tool in sample.tools}
    written, read = f"trained with {listed(sorted(policy.tools))}", f"offers {listed(sorted(offered))}"
    missing = sorted(policy.tools - offered)
    if missing:
        why = f"the suite offers no {listed(missing)}, which the policy was trained to call"
        fix = f"offers: [{', '.join(sorted(policy.tools))}] of the suite, in a prompt that mentions it"
        yield Join(policy.name, name, "tools", written, read, "break", why, fix)
    else:
        yield Join(policy.name, name, "tools", written, read)
    rollout = suite.rollout
    if policy.prompt is not None:
        written, read = f"trained with {policy.prompt}", f"asks with {rollout.prompt}"
        why = "the policy was not trained with this prompt" if policy.prompt != rollout.prompt else ""
        yield _noted(policy.name, name, "prompt", written, read, why, f"rollout.prompt: {policy.prompt}")
    if policy.max_turns is not None and policy.tools:
        written, read = f"max_turns {policy.max_turns}", f"max_turns {rollout.max_turns}"
        fewer = rollout.max_turns < policy.max_turns
        why = "the policy has fewer turns than it was trained with" if fewer else ""
        yield _noted(policy.name, name, "turns", written, read, why, f"rollout.max_turns: {policy.max_turns}")


def _noted(writer: str, reader: str, about: str, written: str, read: str, why: str, fix: str) -> Join:
    """A join that fits; if there is a `why`, with a note that the author may not have intended it."""
    if not why:
        return Join(writer, reader, about, written, read)
    return Join(writer, reader, about, written, read, "note", why, fix)


def audit_join(name: str, reward: RewardRecipe, samples: Sequence[Sample]) -> Join:
    """Whether `vtune faithfulness` can tell what calls show, from boxes or through the recipe's judge."""
    looked = [s for s in samples if s.tools and needs_look(s, reward.evidence)]
    boxes = sum(bool(sample.evidence) for sample in looked)
    written = f"{len(looked)} questions need a look, {boxes} have boxes"
    judges, model = reward.evidence.judges, reward.judge is not None
    unjudged = sum(judge_of(sample, judges, model=model) is None for sample in looked)
    read = judged_by(reward)
    if unjudged:
        why = f"{unjudged} questions have no boxes, and no judge audits their looks"
        fix = "name one with --judge-url and --judge-model, or reward.judge"
        return Join(name, "faithfulness", "audit", written, read, "note", why, fix)
    return Join(name, "faithfulness", "audit", written, read)


def credit_join(writer: str, name: str, credit: Credit, samples: Sequence[Sample]) -> Join:
    """Whether the calls between which credit is transferred can occur."""
    offered = {tool for sample in samples for tool in sample.tools}
    idle = [kind for kind in credit.tools if not offered & set(tool_types()[kind].tools)]
    written, read = (
        f"tools {listed(sorted(offered))}",
        f"credit between calls of {listed(list(credit.tools))}",
    )
    if not idle:
        return Join(writer, name, "credit", written, read)
    level, fix = ("break" if len(idle) == len(credit.tools) else "note"), "take it out of credit.tools"
    why = f"no sample offers a tool of {listed(idle)}: the section has no effect on it"
    return Join(writer, name, "credit", written, read, level, why, fix)  # type: ignore[arg-type]
