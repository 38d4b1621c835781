"""Everything that can be checked about a `vtune rl` before it starts."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vtune.advantage.recipe import Credit
from vtune.advantage.tool_types import tool_types
from vtune.errors import ServiceError, VtuneError
from vtune.models.policy import load_chat
from vtune.models.shape import find_shape
from vtune.report.progress import say
from vtune.reward.checking import ToolSamples, check_evidence, check_keys, check_samples
from vtune.reward.preflight import ping_services
from vtune.reward.recipe import RewardRecipe
from vtune.runs.agent.judge import check_judge, check_summariser
from vtune.runs.agent.kinds import check_devices, check_tensor_parallel, check_vllm
from vtune.runs.agent.tools import check_asking, check_encoders, check_indexes, check_tools, check_writers
from vtune.runs.data.validating import check_data
from vtune.runs.evaluate.questions import without_pictures
from vtune.runs.train.lending import Lending
from vtune.runs.train.loopback_services import check_services_here
from vtune.runs.train.online_suites import Loaded, check_suites, idle_judge_of, load_suites, values_of
from vtune.runs.train.prompt_lengths import check_first_prompts
from vtune.runs.train.rl_recipe import RLRecipe, check_sizes
from vtune.schema.parquet import read_samples
from vtune.schema.sample import Sample
from vtune.schema.store import sample_store
from vtune.update.lora import check_alone, check_targets
from vtune.update.losses import LOSSES
from vtune.update.losses.section import DEFAULT
from vtune.update.ranks import Ranks
from vtune.update.schedule import warm_up_problem
from vtune.update.sequence import check_sequence_parallel
from vtune.verifiers.listing import Lists


def check_rl(recipe: RLRecipe, suites: Sequence[Loaded], *, world: int) -> dict[str, Any]:
    """Check everything that can be checked before weights are loaded, for a run of `world` processes.

    Raises:
        VtuneError: With the problems found: rows, ground truths, judges, sizes.
    """
    check_sizes(recipe, world)
    if recipe.rollout.engine == "vllm":
        check_vllm()
        check_devices(recipe.rollout.tensor_parallel)
    check_keys(recipe.reward)
    for tools in (recipe.tools, *(one.suite.tools for one in suites)):
        check_encoders(tools)
    check_asking(recipe.tools)
    check_writers(recipe.tools, world=world)
    check_service(recipe.reward)
    for warning in doubts(recipe):
        say(f"warning: {warning}")
    check_chat(recipe)
    found = find_shape(recipe.model, None)
    check_tensor_parallel(recipe.rollout.tensor_parallel, found and found[0], kind=recipe.rollout.engine)
    check_sequence_parallel(recipe.update.sequence_parallel, world, found and found[0])
    check_targets(recipe.model, recipe.update)
    if recipe.rollout.adapters == "alone":
        check_alone(recipe.model, recipe.update)
    facts = check_prompts(recipe)
    check_indexes(recipe.tools)
    check_first_prompts(recipe)
    check_judge(recipe.reward, answers=facts["judged_answers_here"], looks=facts["judged_looks_here"])
    check_summariser(recipe.tools)
    check_suites(suites, recipe.tools, model=recipe.model, world=world)
    return facts


def suites_of(recipe: RLRecipe) -> list[Loaded]:
    """The suites on which the run's engine evaluates its weights; empty without `eval`.

    Raises:
        RecipeError: If a suite cannot be read, or cannot be evaluated in this way.
    """
    return load_suites(
        recipe.eval,
        kind=recipe.rollout.engine,
        tensor_parallel=recipe.rollout.tensor_parallel,
        isolation=recipe.sandbox.isolation,
    )


def check_loopback(recipe: RLRecipe, suites: Sequence[Loaded], ranks: Ranks) -> None:
    """Check that services that the run uses on a loopback address also run on this machine.

    Raises:
        RecipeError: If one does not (see `check_services_here`).
    """
    idle = partial(idle_judge, recipe, suites)
    check_services_here(recipe.model_dump(mode="json"), values_of(suites), ranks, idle_judge=idle)


def idle_judge(recipe: RLRecipe, suites: Sequence[Loaded], suite: str) -> bool:
    """Whether this process does not use the judge of the reward: of the named suite, or for "" of the recipe.

    Raises:
        VtuneError: If the rows cannot be read or judged.
    """
    if suite:
        return idle_judge_of(suites, suite)
    rows = (sample for name in recipe.data for sample in read_samples(Path(name)))
    found = check_samples(rows, recipe.reward, feedback=recipe.rollout.feedback)
    return not any(found.asked_here(recipe.reward))


def check_chat(recipe: RLRecipe) -> None:
    """Check that the model can chat; warn if its template opens the thoughts and the format is rewarded.

    Raises:
        DataError: As `load_chat` does.
    """
    chat, reward = load_chat(recipe.model), recipe.reward
    if chat.opens_thoughts and (reward.weighting != "recipe" or reward.format):
        say(
            "warning: the chat template opens <think> itself, so that replies begin without it: the format "
            "reward is 0 with format_rule ordered, and 0.75 at most with counted; remove <think> from the "
            "end of chat_template.jinja in a copy of the model folder, or set reward.format to 0"
        )


def doubts(recipe: RLRecipe) -> list[str]:
    """What a recipe does that its author may not have intended; the run can still start.

    With a single update on tokens sampled by the same weights, every ratio is 1, and losses that coincide
    there have the default's gradient, although their recipes claim to differ. A reward without weights
    teaches nothing, and a length penalty that no conversation reaches penalises nothing.
    """
    found = []
    algorithm = recipe.loss.algorithm
    on_policy = recipe.updates_per_step == 1 and recipe.rollout.staleness == 0
    if on_policy and algorithm != DEFAULT and LOSSES[algorithm].coincides_on_policy:
        found.append(
            f"with one on-policy update per step, loss.algorithm {algorithm} has the gradient of {DEFAULT} "
            "with the same aggregation; to differ, set updates_per_step to 4 (GSPO §5.1) or "
            "rollout.staleness to 1"
        )
    reward, overlong = recipe.reward, recipe.advantage.overlong
    weights = (reward.accuracy, reward.format, reward.tool)
    more = reward.parts.given or reward.consistency or reward.counterfactual
    if reward.weighting == "recipe" and not any(weights) and not more:
        found.append("no part of the reward has weight: every total is 0, and nothing is learnt")
    longest = min(recipe.rollout.max_turns * recipe.rollout.max_new_tokens, recipe.rollout.max_tokens)
    if overlong is not None and overlong.limit - overlong.buffer >= longest:
        found.append(
            f"advantage.overlong begins after {overlong.limit - overlong.buffer} sampled tokens, but "
            f"no conversation has more than {longest}: no reply is penalised; lower its limit"
        )
    return found


def idle_credit(credit: Credit | None, offers: Collection[str]) -> list[str]:
    """Warnings about tool types that credit is to be transferred between, but that no sample offers.

    Args:
        credit: The recipe's section.
        offers: The tools that samples offer.
    """
    types = {name: tool_types()[name].tools for name in (credit.tools if credit is not None else ())}
    return [
        f"credit.tools.{name} has no effect: no sample offers {' or '.join(tools)}"
        for name, tools in types.items()
        if not {*tools} & {*offers}
    ]


def check_service(reward: RewardRecipe) -> None:
    """Check that a reward service responds; warn about one that does not if another can replace it.

    Raises:
        ServiceError: If no service answers.
        RecipeError: If a service rejects the request.
    """
    silent = ping_services(reward)
    if reward.service is not None and len(silent) == len(reward.service.urls):
        raise ServiceError(
            "no reward service answers",
            where="; ".join(silent),
            fix="start one (`vtune serve rewards`), or fix reward.service",
        )
    for line in silent:
        say(f"a reward service does not answer, the others take over: {line}")


class _Rows:
    """What the rows of the data offer and need, read one by one; the first problem of each kind is kept.

    Problems of all rows together are reported after those of single rows, which are listed all at once.
    """

    def __init__(self, recipe: RLRecipe) -> None:
        self._recipe = recipe
        self._failed: dict[str, VtuneError] = {}
        self._found = ToolSamples(paid=0, looks=0)
        self._lists = Lists()
        self._lending = Lending(recipe.reward.evidence)
        self.offers: set[str] = set()

    def see(self, sample: Sample) -> None:
        """Process the next row."""
        self.offers.update(sample.tools)
        recipe, bare = self._recipe, without_pictures(sample)
        self._lists.see(bare)
        self._lending.see(bare)
        self._try("tools", lambda: check_tools([sample], recipe.tools, recipe.rollout.prompt))
        self._try("scores", lambda: self._add(sample))

    def found(self) -> ToolSamples:
        """The facts that `check_evidence` needs.

        Raises:
            VtuneError: The first problem with tools, or else the first with scoring.
        """
        for kind in ("tools", "scores"):
            if kind in self._failed:
                raise self._failed[kind]
        return self._found

    def paying_for_lists(self) -> list[tuple[str, str]]:
        """(source, verifier) pairs that accept a reply listing several answers; only for valid rows."""
        return self._lists.paid()

    def without_targets(self) -> list[str]:
        """Sources whose answers `reward.counterfactual` cannot score; empty without that section.

        Raises:
            RecipeError: If there are no others.
        """
        return [] if self._recipe.reward.counterfactual is None else self._lending.stuck()

    def _try(self, kind: str, check: Callable[[], None]) -> None:
        if kind in self._failed:
            return
        try:
            check()
        except VtuneError as error:
            self._failed[kind] = error

    def _add(self, sample: Sample) -> None:
        recipe = self._recipe
        self._found += check_samples([sample], recipe.reward, feedback=recipe.rollout.feedback)


def check_prompts(recipe: RLRecipe) -> dict[str, Any]:
    """Check that every row of the data can be asked and judged; returns the sizes of the run.

    Raises:
        VtuneError: With the problems found.
    """
    paths = [Path(name) for name in recipe.data]
    rows = _Rows(recipe)
    check_data(paths, see=rows.see)
    found = rows.found()
    check_evidence(found)
    for source in rows.without_targets():
        say(
            f"warning: source {source!r}: all its questions have one right answer, so reward.counterfactual "
            "has no other target to show: right answers that looked are unscored"
        )
    for idle in idle_credit(recipe.credit, rows.offers):
        say(f"warning: {idle}")
    for source, verifier in rows.paying_for_lists():
        say(
            f"warning: source {source!r}: verifier {verifier} gives full marks to a reply that lists "
            "the answers to many of its questions, or to an empty list, and a policy learns to write "
            "these; train with one that wants a single answer (exact, math, counting with match: "
            "equal), and evaluate with this one"
        )
    samples = len(sample_store(paths))
    answers, looks = found.asked_here(recipe.reward)
    problem = warm_up_problem(recipe.update, updates=recipe.steps * recipe.updates_per_step)
    if problem:
        say(f"warning: {problem}")
    if samples < recipe.prompts_per_step:
        say(
            f"warning: prompts_per_step is {recipe.prompts_per_step}, and the data have {samples} "
            "samples: a step asks some of them several times"
        )
    return {
        "samples": samples,
        "steps": recipe.steps,
        "rollouts_per_step": recipe.prompts_per_step * recipe.group_size,
        "judged_looks": found.judged_looks,
        "judged_answers": found.judged_answers,
        "judged_looks_here": looks,
        "judged_answers_here": answers,
    }
