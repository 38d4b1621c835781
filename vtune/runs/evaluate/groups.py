"""Several suites in one command: those that are named, and the members of a paper's table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import model_validator

from vtune.config import find, load_recipe, recipe_keys, shipped
from vtune.errors import BrokenPart, DataError, RecipeError, RunFailed, ServiceError, VtuneError
from vtune.protocols.protocol import NoRule
from vtune.report.progress import say
from vtune.runs.evaluate.suite import EvalSuite
from vtune.sections import Strict

SUITES, GROUPS = "eval_suites", "eval_suites.groups"
"""The packages that contain the built-in suites and groups."""


class Group(Strict):
    """Suites that a paper reports together."""

    members: tuple[str, ...]
    """Names or paths of suites."""
    without_suite: tuple[str, ...]
    """Benchmarks of the table for which there is no suite yet: a run lists them as missing."""
    average: Literal["mean"] | None
    """What the paper reports over all members: the mean of their scores, or nothing."""

    @model_validator(mode="after")
    def _has_something(self) -> "Group":
        if not self.members and not self.without_suite:
            raise ValueError("the group has no members")
        return self


@dataclass(frozen=True, slots=True)
class Named:
    """A suite named by a command."""

    name: str
    path: Path
    group: str | None
    """The group that it is a member of; None: the command named it directly."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The meaning of `--suite`."""

    suites: tuple[Named, ...]
    groups: dict[str, Group]

    @property
    def single(self) -> bool:
        """Whether it is a single suite, not a group."""
        return len(self.suites) == 1 and not self.groups


def asked(words: str) -> Asked:
    """The suites of `--suite`: names or paths of suites and of groups, with commas between them.

    Raises:
        RecipeError: If one does not exist or is repeated.
    """
    suites: list[Named] = []
    groups: dict[str, Group] = {}
    # A path may contain commas.
    for word in [words] if Path(words).is_file() else filter(None, map(str.strip, words.split(","))):
        group = _group(word)
        if group is None:
            path = find(word, SUITES)
            suites.append(Named(path.stem, path, None))
            continue
        name = Path(word).stem
        groups[name] = group
        paths = [find(member, SUITES) for member in group.members]
        suites += [Named(path.stem, path, name) for path in paths]
    names = [suite.name for suite in suites]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RecipeError(
            f"suite `{twice[0]}` is named twice", fix="name it once: a group includes its members"
        )
    if not suites and not groups:
        raise RecipeError("no suite is named", fix="`vtune eval --list` shows what there is")
    return Asked(tuple(suites), groups)


def _group(word: str) -> Group | None:
    path = shipped(GROUPS).get(word)
    if path is None and Path(word).is_file() and _is_group(Path(word)):
        path = Path(word)
    return None if path is None else load_recipe(path, Group)


def _is_group(path: Path) -> bool:
    return "members" in recipe_keys(path)


def run_several(
    asked: Asked,
    load: Callable[[Path], EvalSuite],
    check: Callable[[str, EvalSuite], Any],
    run: Callable[[str, EvalSuite], dict[str, Any]],
) -> dict[str, Any]:
    """Evaluate every named suite, and those members of groups that the protocol has a rule for and whose data
    are here.

    All are checked before the first rollout; a suite that fails later does not stop the others.

    Args:
        asked: The suites.
        load: Path -> suite.
        check: Name and suite; raises errors that can be found before rollouts.
        run: Name and suite -> results.

    Returns:
        `evaluations`, name -> results; `missing`, name -> why it was not evaluated; `failed`, name -> what
        went wrong (`check_failed`); `groups`, name -> its members, missing ones with `reasons`, and its
        `average`, which is None if the paper reports none or a member is missing.

    Raises:
        DataError: If none of them has data here.
        RecipeError: If some cannot be evaluated; lists all of these.
        ServiceError: The same, if only services are the problem.
    """
    suites, missing = _here(asked, load)
    _check_each(suites, check)
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for name, suite in suites.items():
        try:
            found[name] = run(name, suite)
        except BrokenPart:
            raise  # a custom file, which the other suites use as well
        except VtuneError as error:
            failed[name] = str(error)
            say(f"failed: {name}: {error}")
    return {
        "evaluations": found,
        "missing": missing,
        "failed": failed,
        "groups": {name: _table(name, asked, found, {**missing, **failed}) for name in asked.groups},
    }


def check_failed(result: Mapping[str, Any]) -> None:
    """Check that none of several suites failed.

    Args:
        result: Result of `run_several`.

    Raises:
        RunFailed: Lists those that failed.
    """
    failed: Mapping[str, str] = result["failed"]
    if failed:
        count = len(failed) + len(result["evaluations"])
        raise RunFailed(
            "\n".join([f"{len(failed)} of {count} suites failed:", *_listed(failed)]),
            fix="fix what each one says, then continue with --resume: what is finished is not "
            "generated again",
        )


def plan_several(
    asked: Asked, load: Callable[[Path], EvalSuite], check: Callable[[str, EvalSuite], dict[str, Any]]
) -> dict[str, Any]:
    """The result of `check` for each suite (`suites`; see `run_several`), and why others are `missing`, by
    name.

    Raises:
        VtuneError: As `run_several` does before rollouts.
    """
    suites, missing = _here(asked, load)
    return {"suites": _check_each(suites, check), "missing": missing}


def _here(asked: Asked, load: Callable[[Path], EvalSuite]) -> tuple[dict[str, EvalSuite], dict[str, str]]:
    """The suites that can be evaluated, and why others are missing, by name."""
    suites, ruleless = _loaded(asked, load)
    missing = ruleless | dict(_missing(asked, suites))
    here = {named.name: suite for named, suite in suites.items() if named.name not in missing}
    if not here:
        rows = [f"  {name}: {why}" for name, why in missing.items()]
        fix = "get the data of one of them" + (", or name another protocol" if ruleless else "")
        raise DataError("\n".join(["nothing can be evaluated:", *rows]), fix=fix)
    for name, why in missing.items():
        say(f"not evaluated: {name}: {why}")
    return here, missing


def _check_each(suites: Mapping[str, EvalSuite], check: Callable[[str, EvalSuite], Any]) -> dict[str, Any]:
    """The result of `check` for each suite; if it rejects any, all of these in one error."""
    found: dict[str, Any] = {}
    wrong: dict[str, VtuneError] = {}
    for name, suite in suites.items():
        try:
            found[name] = check(name, suite)
        except BrokenPart:
            raise  # as in `run_several`
        except VtuneError as error:
            wrong[name] = error
    if not wrong:
        return found
    kind = ServiceError if all(isinstance(error, ServiceError) for error in wrong.values()) else RecipeError
    rows = _listed({name: str(error) for name, error in wrong.items()})
    raise kind(
        "\n".join([f"{len(wrong)} of {len(suites)} suites cannot be evaluated, so none was started:", *rows]),
        fix="fix that, or leave them out of --suite",
    )


def _listed(reasons: Mapping[str, str]) -> list[str]:
    """One row per suite; a reason may have several lines."""
    return [f"  {name}: " + why.replace("\n", "\n  ") for name, why in reasons.items()]


def _loaded(asked: Asked, load: Callable[[Path], EvalSuite]) -> tuple[dict[Named, EvalSuite], dict[str, str]]:
    """The suites, and by name why group members are missing: the protocol has no rule for them."""
    suites: dict[Named, EvalSuite] = {}
    missing: dict[str, str] = {}
    for named in asked.suites:
        try:
            suites[named] = load(named.path)
        except NoRule as error:
            if named.group is None:
                raise
            missing[named.name] = error.what
    return suites, missing


def _missing(asked: Asked, suites: dict[Named, EvalSuite]) -> Iterable[tuple[str, str]]:
    for group in asked.groups.values():
        for name in group.without_suite:
            yield name, "there is no suite of it yet"
    for named, suite in suites.items():
        if named.group is not None and not is_here(suite):
            yield named.name, f"{', '.join(suite.data)} is not here: {suite.data_from}"


def is_here(suite: EvalSuite) -> bool:
    """Whether all data of a suite are on this machine."""
    return all(Path(path).exists() for path in suite.data)


def _table(
    name: str, asked: Asked, found: dict[str, dict[str, Any]], reasons: dict[str, str]
) -> dict[str, Any]:
    group = asked.groups[name]
    members = [named.name for named in asked.suites if named.group == name]
    scores: dict[str, float | None] = {
        member: found[member]["score"].get("score") for member in members if member in found
    }
    absent = [*(member for member in members if member not in found), *group.without_suite]
    return {
        "scores": scores,
        "missing": absent,
        "reasons": {member: reasons[member] for member in absent},
        "average": _average(group, scores, absent),
        "no_average": _why(group, scores, absent),
    }


def _average(group: Group, scores: dict[str, float | None], absent: Sequence[str]) -> float | None:
    known = [score for score in scores.values() if score is not None]
    return fmean(known) if known and _why(group, scores, absent) is None else None


def _why(group: Group, scores: dict[str, float | None], absent: Sequence[str]) -> str | None:
    """Why there is no average; None if there is one."""
    if group.average is None:
        return "the paper gives none"
    if absent:
        return f"missing: {', '.join(absent)}"
    unscored = [name for name, score in scores.items() if score is None]
    return f"unscored: {', '.join(unscored)}" if unscored else None
