"""The suites for evaluation during training: read, checked and identified."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtune.config import find, load_recipe, override
from vtune.differences import both, with_values
from vtune.errors import RESTORE, DataError, RecipeError
from vtune.files.json_text import read_record
from vtune.files.writing import write_atomically
from vtune.runs.agent.judge import check_judge, check_summariser
from vtune.runs.agent.kinds import Kind, check_temperature
from vtune.runs.agent.tools import ToolsRecipe, check_asking, check_writers
from vtune.runs.evaluate.checking import check_questions
from vtune.runs.evaluate.evaluation import blocking, judged_as_shown
from vtune.runs.evaluate.grading import rule_of, thresholds_of, waits_for_model
from vtune.runs.evaluate.identity import differing, suite_as_today
from vtune.runs.evaluate.lengths import check_question_lengths
from vtune.runs.evaluate.questions import fingerprints
from vtune.runs.evaluate.suite import EvalSuite, check_published
from vtune.runs.moved import index_prints
from vtune.runs.start import PINNED, holds_run
from vtune.runs.train.online_recipe import OnlineEval, evaluations_of
from vtune.sandbox import Isolation

YOUNGER = "suite.answer_default"
"""A key that older suites lack."""
_YOUNGER = " (`answer_default: null` in its `settings` reads answers as when it began)"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A suite, ready to be evaluated."""

    name: str
    suite: EvalSuite
    limit: int | None


def load_suites(
    recipe: OnlineEval | None, *, kind: Kind, tensor_parallel: int = 1, isolation: Isolation = "auto"
) -> list[Loaded]:
    """The suites that a recipe section names; empty without a section.

    Args:
        recipe: The section.
        kind: The kind of engine.
        tensor_parallel: GPUs that share the run's vLLM, which also generates in evaluations.
        isolation: That of the run's own sandbox. If it requests a tier, code in evaluations gets the same
            one, unless the `settings` of a suite request another.

    Raises:
        RecipeError: If a suite cannot be read, or cannot be evaluated in this way.
    """
    found = []
    for one in recipe.suites if recipe is not None else ():
        settings = ({} if isolation == "auto" else {"sandbox.isolation": isolation}) | one.settings
        given = [override(key, value) for key, value in settings.items()]
        path = find(one.suite, "eval_suites")
        suite = blocking(
            judged_as_shown(load_recipe(path, EvalSuite, given, given_by=f"`eval`, suite {one.name}"))
        )
        thresholds_of(suite.reward)
        if waits_for_model(suite) or rule_of(suite).needs_judge:
            raise RecipeError(
                f"protocol `{suite.protocol}` lets a model read answers, but training does not wait for one",
                where=f"eval suite {one.name}",
                fix="set `protocol: vtune`, or `grader: null` where its rules do without, in its `settings`",
            )
        if suite.reward.asks_in_batches:
            raise RecipeError(
                "a batch of the judge may take a day, but training does not wait for one",
                where=f"eval suite {one.name}",
                fix="set reward.judge.batch: false in its `settings`",
            )
        if kind == "vllm":
            remedy = "set 0 or 1 in its `settings`"
            check_temperature(suite.rollout.temperature, where=f"eval suite {one.name}", remedy=remedy)
        if suite.rollout.tensor_parallel not in (1, tensor_parallel):
            raise RecipeError(
                f"rollout.tensor_parallel is {suite.rollout.tensor_parallel}, but the run's own "
                "engine generates",
                where=f"eval suite {one.name}",
                fix=f"leave it out: evaluations use the run's, which is {tensor_parallel}",
            )
        found.append(Loaded(one.name, suite, one.limit))
    return found


def values_of(suites: Iterable[Loaded]) -> dict[str, dict[str, Any]]:
    """Name -> the suite's settings, as plain values."""
    return {one.name: one.suite.model_dump(mode="json") for one in suites}


def check_suites(
    suites: Iterable[Loaded],
    tools: ToolsRecipe | None = None,
    *,
    model: str | None,
    world: int,
    ask: bool = True,
) -> dict[str, int]:
    """Check that all questions can be read and judged; returns the rollouts of each suite, by name.

    Args:
        suites: The run's suites.
        tools: The run's own tools, which stay open during evaluations.
        model: The run's model, whose tokenizer counts the prompts; None: it is not here, nothing is counted.
        world: Number of processes that share the questions.
        ask: Whether to contact the search services too.

    Raises:
        VtuneError: With the problems found.
    """
    rollouts = {}
    for one in suites:
        suite = one.suite
        _check_record(one, tools, world)
        if ask:
            check_asking(suite.tools)
        check_published(suite)
        found = check_questions(suite, limit=one.limit)
        # Looks are audited by boxes only; a model may judge them for the reward or for feedback.
        answers, looks = found.asked.asked_here(suite.reward)
        check_judge(suite.reward, answers=answers, looks=looks)
        check_summariser(suite.tools)
        if model is not None:
            _check_lengths(one, model, found.count)
        rollouts[one.name] = found.count * suite.rollouts
    return rollouts


def _check_lengths(one: Loaded, model: str, count: int) -> None:
    try:
        check_question_lengths(one.suite, model, count=count)
    except DataError as error:
        raise DataError(
            f"eval suite {one.name}: {error.what}", where=error.where, fix=f"{error.fix}; in its `settings`"
        ) from None


def idle_judge_of(suites: Iterable[Loaded], name: str) -> bool:
    """Whether this process does not use the judge of the reward of the suite with this name.

    Raises:
        VtuneError: If its questions cannot be read or judged.
    """
    one = next(one for one in suites if one.name == name)
    found = check_questions(one.suite, limit=one.limit)
    return not any(found.asked.asked_here(one.suite.reward))


def _check_record(one: Loaded, tools: ToolsRecipe | None, world: int) -> None:
    """Check that a suite does not write to the same web record as the run: a record has one writer."""
    check_writers(one.suite.tools, world=world)
    files = [found.web.record for found in (tools, one.suite.tools) if found is not None]
    if len(files) == 2 and None not in files and len({Path(str(file)).resolve() for file in files}) == 1:
        raise RecipeError(
            f"the run and the suite write to the same record of the web, {files[0]}",
            where=f"eval suite {one.name}",
            fix="give the suite its own record, with `tools.web.record` in its `settings`",
        )


def missing_data(suites: Iterable[Loaded]) -> list[str]:
    """Data files of suites that are not present, each with how to get it."""
    return [
        f"data {name} of eval suite {one.name}: {one.suite.data_from}"
        for one in suites
        for name in one.suite.data
        if not Path(name).exists()
    ]


def cost_of(
    recipe: OnlineEval | None, rollouts: Mapping[str, int], *, steps: int, trained: int | None
) -> dict[str, Any]:
    """What a dry run reports about evaluations: how many there are, and how many rollouts they generate.

    Args:
        recipe: The section; None: returns nothing.
        rollouts: Number of rollouts in each suite.
        steps: Number of steps in the run.
        trained: Number of rollouts that it learns from; None if it generates none.
    """
    if recipe is None:
        return {}
    times, each = evaluations_of(recipe, steps), sum(rollouts.values())
    cost: dict[str, Any] = {"evaluations": times}
    cost |= {f"eval_rollouts_{name}": count for name, count in rollouts.items()}
    cost["eval_rollouts"] = times * each
    return cost if trained is None else cost | {"eval_share": times * each / (times * each + trained)}


def pin_suites(suites: Iterable[Loaded], out: Path) -> None:
    """Write down the identity of a run's evaluations.

    Raises:
        RecipeError: As for `check_pinned`.
    """
    pinned = check_pinned(suites, out)
    if pinned:
        write_atomically(out / PINNED, json.dumps(pinned, indent=2) + "\n", option=None)


def check_pinned(suites: Iterable[Loaded], out: Path) -> dict[str, Any]:
    """Check that a run's evaluations are unchanged; called before anything of the run is written.

    Suites may be added or removed when a run resumes.

    Returns:
        The identity of the evaluations, including earlier ones.

    Raises:
        RecipeError: If a suite differs from the one of the same name with which the run began.
    """
    file = out / PINNED
    begun = file.is_file() and holds_run(out)
    before = read_record(file, fix=RESTORE) if begun else {}
    now: dict[str, dict[str, Any]] = {
        one.name: {
            "limit": one.limit,
            "suite": one.suite.model_dump(mode="json"),
            "data": fingerprints(one.suite),
        }
        | ({"indexes": indexes} if (indexes := index_prints(one.suite)) else {})
        for one in suites
    }
    for name in before.keys() & now.keys():
        known = before[name] | {"suite": suite_as_today(before[name]["suite"], now[name]["suite"])}
        if changed := differing(known, now[name]):
            raise RecipeError(
                f"the eval suite {name} is not the one that {out} began with; it differs in "
                f"{with_values(both(changed, known, now[name]))}",
                fix=f"set it back{_YOUNGER if YOUNGER in changed else ''}, or give it a name of its "
                "own: a curve shows one suite",
            )
    return before | now
