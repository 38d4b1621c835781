"""The identity of an evaluation: its folder can only be resumed by the same evaluation."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vtune.config import dump_recipe
from vtune.differences import both, differing_keys, with_values
from vtune.errors import RecipeError
from vtune.files.json_text import read_record
from vtune.files.writing import write_atomically
from vtune.metrics.benchmarks import SCORERS
from vtune.report.progress import say
from vtune.runs.agent.kinds import Kind
from vtune.runs.agent.served import script_facts
from vtune.runs.evaluate.judged import same_grader, ungraded
from vtune.runs.evaluate.questions import fingerprints
from vtune.runs.evaluate.reopened import as_drawn, suite_file, written_suite
from vtune.runs.evaluate.rollout_files import lacks_score, reopen_unscored
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.folder import MAY_CHANGE
from vtune.runs.kept_uses import check_uses, keep_uses
from vtune.runs.moved import CONTENT, by_content, index_prints
from vtune.schema.parquet import read_trajectories
from vtune.uses import prints as using
from vtune.uses import used

JUDGE_ROOM = "suite.reward.judge.max_tokens"
"""May be raised: earlier judge replies were not cut off, and rollouts could not be scored again otherwise."""

STARTED = "started.json"
"""File that records what was requested while the evaluation is unfinished."""
TOTAL = "total"
"""Its key for the evaluation's total number of rollouts."""
SCORING = "scoring"
"""Its key for the names of custom files that add only scorers."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command sets about an evaluation, besides its suite."""

    model: str
    limit: int | None
    kind: Kind
    """The engine that generates."""
    suite: Path
    """The suite's file to continue with."""


def asked_before(out: Path) -> Asked:
    """The settings of the command that began or finished the evaluation in a folder.

    Raises:
        DataError: If its record cannot be read.
        RecipeError: If the folder holds no evaluation.
    """
    for name in ("results.json", STARTED):
        if (out / name).is_file() and (out / "suite.yaml").is_file():
            record = read_record(out / name, "model", fix="the evaluation wrote it; restore it")
            kind: Kind = record.get("engine") or "transformers"
            return Asked(record["model"], record.get("limit"), kind, suite_file(out))
    raise RecipeError(
        f"{out} holds no evaluation of one suite",
        fix="give --suite and --model, or --out with its folder; for several suites, repeat the original "
        "command",
    )


def asked_of(
    suite: EvalSuite, model: str, limit: int | None, kind: Kind, prints: Mapping[str, str]
) -> dict[str, Any]:
    """Everything that identifies an evaluation: if any of it differs, it is a different evaluation."""
    return {
        "model": model,
        "limit": limit,
        "engine": kind,
        "suite": suite.model_dump(mode="json"),
        "data": dict(prints),
    } | _also(using(), index_prints(suite), script_facts(model))


def _also(uses: Mapping[str, Any], indexes: Mapping[str, str], script: Mapping[str, str]) -> dict[str, Any]:
    """Identifying facts that only few evaluations have."""
    found = {"uses": uses, "indexes": indexes}
    return {key: value for key, value in found.items() if value} | dict(script)


def finished_before(
    suite: EvalSuite, model: str, out: Path, limit: int | None, kind: Kind
) -> dict[str, Any] | None:
    """The results in a folder, if they are from the same evaluation and nothing is left to do.

    None if the grader left replies unscored, as it or another one is asked again. Also None if rollouts
    failed, or their judge gave no score, though too few to fail the evaluation.
    """
    result = read_record(
        out / "results.json",
        "model",
        "suite",
        "environment",
        fix="the evaluation wrote it; restore it",
    )
    before = {
        "model": result["model"],
        "limit": result.get("limit"),
        "engine": result.get("engine"),
        "suite": result["suite"],
        "data": result["environment"]["data"],
    } | _also(
        result["environment"].get("uses", {}),
        result["environment"].get("indexes", {}),
        {key: result[key] for key in ("script",) if key in result},
    )
    now = asked_of(suite, model, limit, kind, fingerprints(suite))
    unscored = result.get("grader", {}).get("unscored")
    if unscored:
        _check_same(ungraded(before), ungraded(now), out, finished=True)
        again = f"{len(unscored)} asked again"
        if not same_grader(before["suite"], now["suite"]):
            again = (
                f"{len(unscored)}; it has another model or other settings now, and is asked about all replies"
            )
        say(f"{out} is finished, except for replies that the grader left unscored: {again}")
        return None
    _check_same(before, now, out, finished=True)
    if failed := _failed(result, out / "trajectories.parquet"):
        say(
            f"{out} is finished, except for {failed} rollout(s) without a score, which are generated "
            "or scored again"
        )
        return None
    say(f"{out} is finished: nothing is left to do")
    return result


def _failed(result: Mapping[str, Any], file: Path) -> int:
    """Number of rollouts of a finished evaluation that failed or were not scored."""
    whole = result.get("sources", {}).get("all", {})
    if not whole.get("unscored") or not file.is_file():
        return 0
    return sum(map(lacks_score, read_trajectories(file)))


def _reopen(out: Path, now: dict[str, Any], total: int) -> None:
    """Continue a finished evaluation like one whose rollouts are all generated; its results stay."""
    as_drawn(out)
    _start(out, now, total)


def _start(out: Path, asked: Mapping[str, Any], total: int) -> None:
    scoring = _scoring()
    text = json.dumps({**asked, TOTAL: total} | ({SCORING: scoring} if scoring else {}), indent=2)
    write_atomically(out / STARTED, f"{text}\n")


def _scoring() -> list[str]:
    """Names of the loaded files that add only scorers."""
    return [file.name for file in used() if {kind for kind, _ in file.parts} == {SCORERS.kind}]


def _corrected(before: Mapping[str, Any]) -> dict[str, str]:
    """Name -> SHA-256 of changed files that an unfinished evaluation accepts in their current form.

    Scorers run after all rollouts, and nothing of theirs is stored before `results.json`: a file that added
    only scorers, and still does, has not affected what exists.
    """
    now, began = using(), before.get("uses", {})
    both = [name for name in _scoring() if name in before.get(SCORING, ())]
    return {name: now[name] for name in both if began.get(name) != now[name]}


def _check_same(before: dict[str, Any], now: dict[str, Any], out: Path, *, finished: bool = False) -> None:
    again = (
        f"; to score the rollouts of {out} with other files, evaluate --model "
        f"scripted:NEW/replies.jsonl after `vtune export {out} NEW --as scripted`"
    )
    check_uses(before.get("uses", {}), out, instead=again if finished else "")
    before = before | {"suite": suite_as_today(before["suite"], now["suite"])}
    changed = differing(before, now)
    if JUDGE_ROOM in changed and _judge_room(now) > _judge_room(before):
        changed.remove(JUDGE_ROOM)
    if changed:
        raise RecipeError(
            f"this is not the evaluation that {out} began with; it differs in "
            f"{with_values(both(changed, before, now))}",
            fix=f"{_as_it_began(before, now, out, changed)}, or start a new one with another --out",
        )


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The keys in which two evaluations differ, except those that may; see `asked_of`."""
    there, here = ({key: value for key, value in one.items() if key != "indexes"} for one in (before, now))
    keys = [key for key in differing_keys(there, here) if key.removeprefix("suite.") not in MAY_CHANGE]
    return by_content(keys, before.get("indexes", {}), now.get("indexes", {}), "suite.")


def _as_it_began(before: Mapping[str, Any], now: Mapping[str, Any], out: Path, changed: list[str]) -> str:
    """How to continue the evaluation in a folder, which stores its command's settings but not its files."""
    if any(key.startswith(CONTENT) for key in changed):
        return "restore the index that it began with"
    data, other = before["data"], now["data"]
    script = before["model"] == now["model"] and before.get("script") != now.get("script")
    if script or any(data[name] != other[name] for name in data.keys() & other.keys()):
        return "restore the files that it began with"
    return f"run `vtune eval --resume --out {shlex.quote(str(out))}` to continue with the original settings"


def _judge_room(asked: Mapping[str, Any]) -> int:
    found: Any = asked
    for key in JUDGE_ROOM.split("."):
        found = found[key]
    return int(found)


def suite_as_today(stored: Any, now: Mapping[str, Any]) -> Any:
    """A stored suite with newer keys added, at values that match the behaviour before they existed.

    Args:
        stored: As written.
        now: The suite to compare with; provides `kind` if the stored suite has none.
    """
    try:
        stored = {"kind": now.get("kind")} | stored
        return EvalSuite.model_validate(stored).model_dump(mode="json")
    except ValidationError:
        return stored


def check_new(out: Path) -> None:
    """Check that a folder holds no evaluation, finished or not.

    Raises:
        RecipeError: If it does.
    """
    if (out / "results.json").exists():
        raise RecipeError(f"{out} holds results already", fix="choose another --out; --resume shows them")
    if (out / STARTED).exists():
        raise RecipeError(
            f"{out} holds an unfinished evaluation",
            fix="continue it with --resume, choose another --out, or remove it",
        )


def begin(suite: EvalSuite, out: Path, now: dict[str, Any], *, total: int, resume: bool) -> None:
    """Start a folder, or check that it holds part of the same evaluation, or all its rollouts.

    Args:
        suite: What is measured.
        out: The folder.
        now: What is requested, see `asked_of`.
        total: Total number of rollouts.
        resume: Whether it was begun before.
    """
    file = out / STARTED
    if not resume:
        check_new(out)
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(written_suite(out), dump_recipe(keep_uses(suite, out)))
        _start(out, now, total)
        return
    if (out / "results.json").exists() and not file.exists():
        _reopen(out, now, total)
    if not file.exists():
        raise RecipeError(f"{out} holds no evaluation to resume", fix="start it without --resume")
    before = read_record(file, fix="the evaluation wrote it; restore it, or start a new one")
    corrected = _corrected(before)
    before |= {"uses": before["uses"] | corrected} if corrected else {}
    same = {key: value for key, value in before.items() if key not in (SCORING, TOTAL)}
    _check_same(ungraded(same), ungraded(now), out)
    if corrected:
        names = ", ".join(corrected)
        say(
            f"{names} has changed since {out} began; it adds only scorers, so the rollouts stay and "
            "are scored by it"
        )
        write_atomically(file, json.dumps(before, indent=2) + "\n", option=None)
    write_atomically(written_suite(out), dump_recipe(keep_uses(suite, out)), option=None)
    reopen_unscored(out, out / "trajectories", rollouts=suite.rollouts)
