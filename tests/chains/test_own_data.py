"""A user's own questions with boxes, from a file to the report, with the shipped recipes.

Recipes are changed only in the keys that `overrides` lists. The policy is scripted: it repeats the traces of
its cold start, so that every step of the chain has to agree with the one before it.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

import vtune.runs.agent.engines as drawing
import vtune.runs.train.opening as training
from tests.chains.overrides import settings
from tests.chains.table import Record, record_earned
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import numbers, vtune
from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Request
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.sample import Sample
from vtune.schema.store import sample_store
from vtune.schema.trajectory import Trajectory

pytestmark = pytest.mark.train

SIZE = (448, 336)
COUNT = 6


def done(*words: str | Path) -> dict[str, Any]:
    ended = vtune(*words, "--json")
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


@dataclass(frozen=True)
class Question:
    name: str
    text: str
    answer: str
    verifier: str
    ability: str
    choices: tuple[str, ...]
    box: tuple[int, int, int, int]


def questions() -> list[Question]:
    found = []
    for number in range(COUNT):
        x, y = 40 + 55 * number, 60 + 30 * (number % 3)
        box = (x, y, x + 60, y + 60)
        kind = number % 3
        if kind == 0:
            found.append(
                Question(f"q{number}", f"What is at sign {number}?", "a cup", "exact", "vqa", (), box)
            )
        elif kind == 1:
            found.append(
                Question(
                    f"q{number}", f"How many dots has sign {number}?", "3", "counting", "counting", (), box
                )
            )
        else:
            text = f"Which colour has sign {number}?\nA. red\nB. blue"
            found.append(Question(f"q{number}", text, "B", "choice", "attribute", ("red", "blue"), box))
    return found


def photographs(folder: Path) -> None:
    for number, question in enumerate(questions()):
        noise = np.random.default_rng(number).integers(
            0, 256, (SIZE[1] // 8, SIZE[0] // 8, 3), dtype=np.uint8
        )
        picture = Image.fromarray(noise).resize(SIZE, Image.Resampling.BICUBIC)
        draw = ImageDraw.Draw(picture)
        draw.rectangle(question.box, outline=(255, 255, 255), width=4)
        out = io.BytesIO()
        picture.save(out, "PNG")
        (folder / f"{question.name}.png").write_bytes(out.getvalue())


def as_lines(folder: Path) -> Path:
    file = folder / "mine.jsonl"
    rows = [
        {
            "data_source": "mine",
            "prompt": question.text,
            "images": [f"{question.name}.png"],
            "ability": question.ability,
            "reward_model": {"ground_truth": question.answer, "verifier": question.verifier},
            "extra_info": {"id": f"mine/{question.name}"},
            "tools": ["python"],
            "evidence": [{"label": "", "image": 0, "bbox_2d": list(question.box)}],
            "choices": list(question.choices),
        }
        for question in questions()
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def as_table(folder: Path) -> tuple[Path, Path]:
    file, columns = folder / "mine.csv", folder / "columns.yaml"
    with file.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["key", "picture", "asked", "truth", "judge", "kind", "where"])
        for question in questions():
            boxes = json.dumps(list(question.box))
            asked = (question.name, f"{question.name}.png", question.text, question.answer)
            table.writerow([*asked, question.verifier, question.ability, boxes])
    columns.write_text(
        "source: mine\nquestion: asked\nanswer: truth\nimages: picture\nid: key\ntools: [python]\n"
        "ability: {column: kind}\nverifier: {column: judge}\nevidence: where\n"
    )
    return file, columns


class Taught(ScriptedEngine):
    """Repeats for each sample its trace, word for word."""

    def __init__(self, chat: Chat, samples: Sequence[Sample], traces: Sequence[Trajectory]) -> None:
        super().__init__(chat, ["never said"])
        self._samples = samples
        self._says = {
            trace.sample_id: [message.content for message in trace.messages if message.role == "assistant"]
            for trace in traces
        }

    async def generate(self, request: Request) -> Completion:
        *_, number, _, turn = request.key
        said = self._says[self._samples[number].id][turn]
        return await ScriptedEngine(self._chat, [said]).generate(request)


@dataclass(frozen=True)
class Chain:
    """The output of each step."""

    samples: Path
    traces: Path
    school: Path
    rl: Path
    eval: Path
    from_table: Path


@pytest.fixture(scope="module")
def chain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    root = tmp_path_factory.mktemp("own")
    photographs(root)
    lines, table = root / "lines.parquet", root / "table.parquet"
    done("data", "import", "samples", as_lines(root), "--out", lines, "--strict")
    file, columns = as_table(root)
    done("data", "import", "hf", file, "--columns", columns, "--images", root, "--out", table, "--strict")
    done("curate", "own", "--out", root / "curated", *settings("data", sources__own__files=f"[{lines}]"))
    samples, traces = root / "curated" / "samples.parquet", root / "traces.parquet"
    done("data", "make", "traces", "--data", samples, "--out", traces)
    machine = {"update__dtype": "float32", "update__threads": 1}
    small = {"images__max_pixels": 50176, "update__micro_tokens": 4096} | machine
    school = root / "sft"
    done(
        *("sft", "--recipe", "codev", "--out", school),
        *settings("sft", model=tiny, data=f"[{traces}]", batch_size=3, epochs=1.0, max_tokens=4096),
        *settings("sft", update__warmup_steps=0, **small),
    )
    model = (school / "checkpoints" / "newest").resolve()
    words = [
        *("rl", "--recipe", "codev", "--out", str(root / "rl")),
        *settings("rl", model=model, data=f"[{samples}]", steps=1, prompts_per_step=COUNT, group_size=2),
        *settings("rl", rollout__max_tokens=4096, rollout__max_batch=4, trajectories_every=1),
        *settings("rl", rollout__engine="transformers", **small),
    ]
    done(*words, "--dry-run")
    with pytest.MonkeyPatch.context() as patch:
        taught = list(read_trajectories(traces))
        store = sample_store([samples])
        drawn = [store.shuffled(number, seed=0)[0] for number in range(COUNT)]
        patch.setattr(
            training, "training_engine", lambda recipe, policy, **more: Taught(policy.chat, drawn, taught)
        )
        patch.setattr("vtune.runs.train.learning.MISMATCH", math.inf)  # its log-probabilities are made up
        done(*words)

        async def engine(kind: str, recipe: object, policy: Any, **more: object) -> Taught:
            return Taught(policy.chat, list(read_samples(samples)), taught)

        patch.setattr(drawing, "evaluation_engine", engine)
        done(
            *("eval", "--suite", "own", "--model", model, "--data", samples, "--out", root / "eval"),
            *settings("eval", images__max_pixels=50176, rollout__max_tokens=4096, dtype="float32", threads=1),
        )
    return Chain(samples, traces, school, root / "rl", root / "eval", table)


def test_json_lines_and_a_table_become_the_same_samples(chain: Chain) -> None:
    lines, table = (list(read_samples(file)) for file in (chain.samples, chain.from_table))
    assert len(lines) == COUNT
    by_id = {sample.id: sample for sample in table}
    for sample in lines:
        # Curation records the source of its recipe; the table lists options only in the question.
        assert replace(by_id[sample.id], source="own", extra={}) == replace(sample, source="own", extra={})


def test_every_question_has_a_trace_for_the_cold_start(chain: Chain) -> None:
    assert len(list(read_trajectories(chain.traces))) == COUNT
    assert {step for step, _ in numbers(chain.school)} == {0, 1}


def test_the_sandbox_returns_what_the_traces_say(chain: Chain) -> None:
    taught = {trace.sample_id: trace for trace in read_trajectories(chain.traces)}
    for file in (chain.rl / "trajectories" / "step-000000.parquet", chain.eval / "trajectories.parquet"):
        drawn = list(read_trajectories(file))
        assert {trajectory.sample_id for trajectory in drawn} == set(taught)
        for trajectory in drawn:
            trace = taught[trajectory.sample_id]
            assert trajectory.messages == trace.messages
            assert [p.data for p in trajectory.images if p.origin == "input"] == [
                p.data for p in trace.images if p.origin == "input"
            ]
            assert [[(c.image, c.bbox) for c in call.crops] for call in trajectory.calls] == [
                [(c.image, c.bbox) for c in call.crops] for call in trace.calls
            ]


def test_the_taught_policy_earns_full_marks_for_every_source(chain: Chain, record_property: Record) -> None:
    for name, file in (
        ("rl/codev (own data), taught", chain.rl / "trajectories" / "step-000000.parquet"),
        ("eval/own, taught", chain.eval / "trajectories.parquet"),
    ):
        record_earned(record_property, name, read_trajectories(file))
    rows = numbers(chain.rl)
    assert {source for _, source in rows} == {"all", "own"}
    for row in rows.values():
        paid = [row[name] for name in ("reward_accuracy", "reward_format", "reward_tool", "reward")]
        assert paid == [1.0, 1.0, 1.0, 1.8]
        assert row["red_flags"] == 0


def test_the_run_is_right_and_faithful_where_it_was_taught_to_be(chain: Chain, tmp_path: Path) -> None:
    for run in (chain.rl, chain.eval):
        out = tmp_path / f"{run.name}.parquet"
        made = done("data", "make", "traces", "--run", run, "--out", out)
        assert made["traces"] == COUNT
        taught = {trace.sample_id: trace.messages for trace in read_trajectories(chain.traces)}
        assert {trace.sample_id: trace.messages for trace in read_trajectories(out)} == taught


def test_the_evaluation_the_audit_and_the_report_agree(chain: Chain) -> None:
    result = json.loads((chain.eval / "results.json").read_text())
    assert result["score"]["score"] == 1.0
    for run in (chain.rl, chain.eval):
        audited = done("faithfulness", run)["all"]
        assert audited["faithful_of_correct"]["value"] == 1.0
        assert audited["n_unscored"] == 0
    told = done("report", chain.school, chain.rl, chain.eval)
    school, run = told["runs"]
    assert school["sources"]["all"]["loss"]["last"] > 0
    assert run["sources"]["own"]["reward_tool"]["last"] == 1.0
    (evaluation,) = told["evaluations"]
    assert evaluation["score"] == result["score"]
