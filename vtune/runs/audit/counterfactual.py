"""`vtune faithfulness --counterfactual`: right answers once more, with other pictures in the same place."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vtune.errors import RecipeError, nearest
from vtune.files.json_text import read_json
from vtune.metrics.counterfactual import Rerun, dependence
from vtune.models.served import is_served
from vtune.models.source import resolved
from vtune.report.progress import Steps
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer
from vtune.rollout.regeneration import draw_side_by_side
from vtune.runs.agent.exchanges import EXCHANGES, WITHHELD
from vtune.runs.agent.kinds import check_vllm
from vtune.runs.agent.opening import load_fixed, opened_engine
from vtune.runs.agent.served import check_model, kind_of
from vtune.runs.audit.drawn import drawn_as
from vtune.runs.audit.located import Audited, check_thresholds
from vtune.runs.audit.rerun_candidates import Candidate
from vtune.runs.audit.rerun_record import NAME, RerunRecord
from vtune.runs.audit.rerun_turns import Model, Reruns, Turn, judged, turn_again
from vtune.runs.audit.rerun_verdicts import judged_by
from vtune.runs.audit.stored_audit import Place
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.view.place import step_of


def asked_exchanges(names: str) -> tuple[str, ...]:
    """The exchanges in a comma-separated list, in order.

    Raises:
        RecipeError: If an exchange is unknown, or none is given.
    """
    asked = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in asked or ("",):
        if name not in EXCHANGES:
            raise RecipeError(
                f"there is no exchange {name!r}",
                where="--counterfactual",
                fix=nearest(name, EXCHANGES),
            )
    return asked


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunWith:
    """The command line's settings for re-runs."""

    exchanges: str
    """Names, separated by commas."""
    model: str
    """Folder or hub name, or `openai:URL#model`, of the model that generated the trajectories."""
    agent: str | None = None
    """Name or path of the agent that generated them, overriding what the run says."""
    vllm: bool = False


def prepared(asked: RerunWith, audited: Audited, path: Path) -> Reruns:
    """Check and prepare everything before an audit begins.

    Args:
        asked: The command line's settings.
        audited: The trajectories.
        path: Their folder or file.

    Raises:
        RecipeError: If the files are from several steps, a model graded the answers, nothing says at which
            IoU threshold boxes were judged, or an exchange needs the policy's tokens and its model is behind
            an endpoint.
        VtuneError: If the model is not available.
    """
    exchanges = asked_exchanges(asked.exchanges)
    if len({step_of(file) for file in audited.files}) > 1:
        raise RecipeError(
            "each step of a run was generated with different weights, but --model has those of one step",
            where=str(path),
            fix=f"name the file of one step, e.g. {audited.files[-1]}, and the checkpoint that generated it",
        )
    drawn = drawn_as(audited.settings, asked.agent)
    judged = judged_by(audited)
    if judged.rule.by == "verifier":
        check_thresholds(audited)
    model = resolved(asked.model)
    kind = kind_of(model, "vllm" if asked.vllm else "transformers")
    if kind == "vllm":
        check_vllm()
    if is_served(model) and WITHHELD in exchanges:
        raise RecipeError(
            f"`{WITHHELD}` begins the policy's turn, which an endpoint does not allow",
            where="--counterfactual",
            fix="leave it out, or give a folder of weights",
        )
    check_model(model, drawn.openai, drawn.rollout)
    record = (path if path.is_dir() else path.parent) / NAME
    return Reruns(
        exchanges=exchanges,
        model=model,
        settings=drawn,
        kind=kind,
        seed=audited.seed,
        record=RerunRecord(record),
        judged_by=judged,
        drawn_by=_other_model(model, record.with_name("results.json")),
    )


def _other_model(model: str, results: Path) -> str | None:
    """The model named by an evaluation, if its name differs from that of the model used for re-runs.

    One folder under two names is the same model; for endpoints and copies this cannot be known here.
    """
    if not results.is_file():
        return None
    found = read_json(results, fix="restore the file as the evaluation wrote it, or evaluate again")
    named = found.get("model") if isinstance(found, dict) else None
    if not isinstance(named, str) or named == model or Path(named).resolve() == Path(model).resolve():
        return None
    return named


def run_counterfactual(
    reruns: Reruns,
    looked: Sequence[Candidate],
    samples: Mapping[str, Sample],
    portions: Iterator[tuple[Path, Sequence[Trajectory]]],
    reward: RewardRecipe,
) -> dict[str, Any]:
    """Regenerate right answers with each exchange, and report which depend on what was seen.

    Args:
        reruns: What to regenerate, and how.
        looked: Candidates found by the audit.
        samples: Id -> sample, without pictures.
        portions: The same trajectories again, by file.
        reward: How answers are judged.

    Returns:
        `model`; `drawn_by`, the name of the model that generated the trajectories, if different; `exchanges`,
        with a `vtune.metrics.counterfactual.Dependence` for each; `drawn`, number of turns generated now;
        `tokens`, in all recorded turns, None if not visible here; `record`, the file that stores them.

    Raises:
        DataError: If a record is from another model.
        RunFailed: If nothing is left that could generate.
    """
    reruns.record.trim()
    found, drawn = asyncio.run(_rerun(reruns, looked, samples, portions, reward))
    rows = [replace(one.answered, reruns=found.get(one.place, {})) for one in looked]
    tokens = [one.tokens for row in rows for one in row.reruns.values() if one.tokens is not None]
    exchanges = {
        name: asdict(dependence(rows, name, seed=reruns.seed, max_unscored=reward.max_unscored))
        for name in reruns.exchanges
    }
    return {
        "model": reruns.model,
        "drawn_by": reruns.drawn_by,
        "temperature": reruns.settings.rollout.temperature,
        "exchanges": exchanges,
        "drawn": drawn,
        "tokens": sum(tokens) if tokens else None,
        "record": str(reruns.record.path),
    }


async def _rerun(
    reruns: Reruns,
    looked: Sequence[Candidate],
    samples: Mapping[str, Sample],
    portions: Iterator[tuple[Path, Sequence[Trajectory]]],
    reward: RewardRecipe,
) -> tuple[dict[Place, dict[str, Rerun]], int]:
    """The re-runs by place and exchange, and the number of turns generated now."""
    asked = {one.place for one in looked if one.asked}
    found: dict[Place, dict[str, Rerun]] = {place: {} for place in asked}
    rows: Counter[Path] = Counter()
    drawn, room = 0, reruns.settings.rollout.max_batch
    async with (
        _opened(reruns) as model,
        Scorer(reward, shown=model.policy.pictures.shown_size) as scorer,
    ):
        with Steps("counterfactual", len(asked) * len(reruns.exchanges)) as steps:
            for file, portion in portions:
                places = [(file, number) for number in range(rows[file], rows[file] + len(portion))]
                rows[file] += len(portion)
                todo = [(place, one) for place, one in zip(places, portion, strict=True) if place in asked]
                for name in reruns.exchanges:
                    # Only as many as are generated together, as each holds its pictures in memory.
                    for start in range(0, len(todo), room):
                        part = todo[start : start + room]
                        turns = [
                            await asyncio.to_thread(turn_again, reruns, name, one, samples, portion, model)
                            for _, one in part
                        ]
                        drawn += sum(isinstance(turn, Turn) for turn in turns)
                        results = await _results(reruns, turns, model, scorer, steps)
                        for (place, _), rerun in zip(part, results, strict=True):
                            found[place][name] = rerun
    return found, drawn


async def _results(
    reruns: Reruns, turns: Sequence[Turn | Rerun], model: Model, scorer: Scorer, steps: Steps
) -> list[Rerun]:
    """The results of turns that are generated together, in order."""
    todo = [turn for turn in turns if isinstance(turn, Turn)]
    again = [turn.again for turn in todo]
    said = await draw_side_by_side(model.engine, again, model.policy.chat, room=max(1, len(todo)))
    drawn = iter(
        await asyncio.gather(
            *(judged(reruns, turn, one, scorer) for turn, one in zip(todo, said, strict=True))
        )
    )
    for _ in turns:
        steps.advance()
    return [next(drawn) if isinstance(turn, Turn) else turn for turn in turns]


@asynccontextmanager
async def _opened(reruns: Reruns) -> AsyncIterator[Model]:
    settings, folder = reruns.settings, reruns.record.path.parent
    policy = load_fixed(settings, reruns.model, kind=reruns.kind)
    opening = opened_engine(settings, policy, reruns.model, folder, kind=reruns.kind)
    async with opening as engine:
        yield Model(policy, engine)
