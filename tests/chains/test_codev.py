"""CodeV's chain, from its published data to its tables, with the shipped recipes.

Thyme-SFT -> `data/codev-sft` -> `sft/codev`; DeepEyes and ThinkLite -> `data/codev-rl` -> `rl/codev`; V* and
HR-Bench -> `eval/vstar`, `eval/hrbench-4k`. Of the two rollouts in training one does what its prompt asks and
the other does what Thyme's traces taught.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chains.overrides import check_unchanged, settings
from tests.chains.pictures import shows_colour
from tests.chains.table import Record, record_earned
from tests.data.benchmarks import hrbench_rows, make_vstar, picture, write_tsv
from tests.data.formats.published import DEEPEYES_SYSTEM, DEEPEYES_USER, parquet
from tests.judge.server import FakeJudge, serve
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import numbers, vtune
from tests.runs.looking import BOX, HABITS, NUMBERS, Looking
from tests.scripted import draw_with
from vtune.config import find, load_recipe
from vtune.curate.judging import KNOWLEDGE_SYSTEM, LABEL_SYSTEM
from vtune.judge.prompts import ANSWER_SYSTEM, EVIDENCE_SYSTEM, TARGET_SYSTEM
from vtune.metrics.log import read_metrics
from vtune.models.chat import Chat
from vtune.reward.preflight import HELLO
from vtune.rollout.engine import Completion, Request
from vtune.rollout.prompts import CODEV_SYSTEM
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.verifiers.verifying import Verifying


@dataclass(frozen=True)
class Asked:
    """A question of a published file."""

    file: str
    source: str
    text: str
    truth: str
    search: bool = False
    """Whether the question needs a look."""
    kept: bool = True
    """Whether it survives curation."""
    identity: str = ""


EASY = "Is the sign large?"
EXTERNAL = "Which painter was the first to use this style?"
ASKED = (
    Asked("vstar", "vstar", "What is the colour of the small sign?", "The sign is red.", search=True),
    Asked("vstar", "vstar", "Where is the sign?\nA. left\nB. right", "A", search=True),
    Asked("vstar", "vstar", EASY, "Yes, it is large.", search=True, kept=False),
    Asked("chart", "chart", "Which year has the highest bar?", "1999", search=True),
    Asked("eureka", "thinklite_eureka", "Find the length of AB.", "5"),
    Asked("thinklite", "FigureQA", "Is blue the maximum?", "no", identity="FigureQA_0"),
    Asked("thinklite", "IconQA", "How many dots are there?", "4", identity="IconQA_1"),
    Asked("thinklite", "OK-VQA", EXTERNAL, "Monet", kept=False, identity="OK-VQA_2"),
    Asked("thinklite", "thinklite", "What is the area?", "12.5", identity="3"),
)
KEPT = tuple(asked for asked in ASKED if asked.kept)
REASON_SYSTEM = (
    "You are a helpful assistant. The user will ask you a question and you as the assistant solve it."
)
REASON_USER = "Put your thoughts in <think> </think> tags and the final answer in \\boxed{}.\nQuestion:\n"


def deepeyes_row(number: int, asked: Asked) -> dict[str, Any]:
    """A row as in DeepEyes-Datasets-47k; its ThinkLite rows have no environment."""
    zoom = asked.file != "eureka"
    user = f"{asked.text}{DEEPEYES_USER}" if zoom else f"{REASON_USER}{asked.text}"
    row = {
        "data_source": asked.source,
        "prompt": [
            {"role": "system", "content": DEEPEYES_SYSTEM if zoom else REASON_SYSTEM},
            {"role": "user", "content": f"<image>\n{user}"},
        ],
        "images": [{"bytes": photograph(number), "path": None}],
        "ability": "vl_chart" if asked.source == "chart" else "vl",
        "env_name": "visual_toolbox_v2" if zoom else None,
        "reward_model": {"style": "model" if zoom else "rule", "ground_truth": asked.truth},
        "extra_info": {"split": "train", "index": str(number), "answer": asked.truth, "question": asked.text},
    }
    return row | ({"rationale": "The tallest bar."} if asked.source == "chart" else {})


def thinklite_row(number: int, asked: Asked) -> dict[str, Any]:
    """A row as in ThinkLite-VL-70k."""
    return {
        "image": photograph(number),
        "problem": f"<image>{asked.text}",
        "answer": asked.truth,
        "id": asked.identity,
        "choices": None,
        "ground_truth": asked.truth,
    }


def photograph(number: int) -> bytes:
    return picture(number, (400, 300), (40, 30, 60, 50))


FILES = {
    "vstar": "data_0.1.2_visual_toolbox_v2.parquet",
    "chart": "data_v0.8_visual_toolbox_v2.parquet",
    "eureka": "data_thinklite_reasoning_acc.parquet",
    "thinklite": "ThinkLite-VL-70k.parquet",
}


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Give verifiers more than their 30 s: a busy machine is slow to start their processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Verifying.__init__.__kwdefaults__, "timeout_s", 300.0)
        yield


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files as published."""
    folder = tmp_path_factory.mktemp("published")
    rows: dict[str, list[dict[str, Any]]] = {file: [] for file in FILES}
    for number, asked in enumerate(ASKED):
        make = thinklite_row if asked.file == "thinklite" else deepeyes_row
        rows[asked.file].append(make(number, asked))
    return {file: parquet(folder / name, rows[file]) for file, name in FILES.items()}


def imported(published: dict[str, Path], folder: Path, *words: str) -> dict[str, Path]:
    """The same files imported, as one file of samples each."""
    made = {}
    for file, path in published.items():
        layout = "thinklite" if file == "thinklite" else "deepeyes"
        out = folder / f"{file}.parquet"
        ended = vtune("data", "import", layout, path, "--out", out, *words, "--json")
        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["problems"] == []
        made[file] = out
    return made


def judges(request: dict[str, Any]) -> str:
    """A rule-based judge."""
    system, user = request["messages"]
    text = next(part["text"] for part in user["content"] if part["type"] == "text")
    if system["content"] == KNOWLEDGE_SYSTEM:
        return "EXTERNAL" if EXTERNAL in text else "VISUAL"
    if system["content"] == LABEL_SYSTEM:
        return "RIGHT"
    if system["content"] == ANSWER_SYSTEM:
        reference, given = re.findall(r"answer: (\".*\")", text)
        return "TRUE" if reference == given else "FALSE"
    if system["content"] == TARGET_SYSTEM:
        return str(int(shows_colour(user["content"])))
    assert system["content"] in (EVIDENCE_SYSTEM, HELLO.system)
    return "1"


@pytest.fixture(scope="module")
def judge() -> Iterator[FakeJudge]:
    with serve(judges) as served:
        yield served


class Obedient(ScriptedEngine):
    """Does what its prompt asks: looks if a look is needed, with code if the prompt explains it, and answers.

    Args:
        chat: The chat template that it reads and writes.
        knows: Questions that it answers correctly.
        taught: Turns of a trace; every second rollout looks and answers in their wording.
    """

    def __init__(self, chat: Chat, knows: frozenset[str], taught: tuple[str, ...] = ()) -> None:
        super().__init__(chat, ["never said"])
        self._knows = knows
        self._taught = taught

    async def generate(self, request: Request) -> Completion:
        prompt = self._chat.decode(list(request.token_ids))
        (asked,) = [asked for asked in ASKED if asked.text in prompt]
        path = re.search(r'### User Image Path:\*\* "([^"]+)"', prompt)
        *_, rollout, turn = request.key
        if self._taught and rollout % 2 and asked.search:
            said = (
                self._taught[turn].replace(TRACE_PATH, path[1] if path else "").replace("1984", asked.truth)
            )
            return await ScriptedEngine(self._chat, [said]).generate(request)
        if asked.search and CODEV_SYSTEM in prompt and path and "<sandbox_output>\n" not in prompt:
            said = (
                "<think>I look closer.<code>\n```python\nfrom PIL import Image\n"
                f'image = Image.open("{path[1]}")\nimage.crop((20, 20, 140, 110)).save("look.png")\n'
                'print("look.png")\n```\n</code>'
            )
        else:
            answer = asked.truth if asked.text in self._knows else "nothing of the kind"
            said = f"<think>So it is.</think>\n<answer>{answer}</answer>"
        return await ScriptedEngine(self._chat, [said]).generate(request)


@pytest.fixture(scope="module")
def curated(
    published: dict[str, Path], judge: FakeJudge, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What `data/codev-rl` makes of the published files, with a policy that knows only the easy question."""
    folder = tmp_path_factory.mktemp("curated")
    files = imported(published, folder)
    url = judge.endpoint().base_url
    changes = settings(
        "data",
        sources__vstar__files=f"[{files['vstar']}]",
        sources__chart__files=f"[{files['chart']}]",
        sources__thinklite_eureka__files=f"[{files['eureka']}]",
        sources__thinklite__files=f"[{files['thinklite']}]",
        filters__3__judge__base_url=url,
        filters__4__judge__base_url=url,
        filters__5__judge__base_url=url,
        filters__5__model=tiny,
        filters__5__engine="transformers",
        filters__5__dtype="float32",
        filters__5__threads=1,
        filters__5__images__max_pixels=12544,
    )
    with pytest.MonkeyPatch.context() as patch:
        draw_with(patch, lambda policy, **_: Obedient(policy.chat, frozenset({EASY})))
        ended = vtune("curate", "codev-rl", "--out", folder / "out", *changes, "--json")
    assert ended.code == 0, ended.err
    return folder / "out"


TRACE_PATH = "/mnt/data/temp/00000001_00.jpg"
LOOK = (
    "<code>\n```python\nfrom PIL import Image\n"
    f'image = Image.open("{TRACE_PATH}")\nimage.crop((20, 20, 140, 110)).save("look.png")\n'
    'print("look.png")\n```\n</code>'
)
OUTPUT = "\n<sandbox_output><image></sandbox_output>\n"
END = "Now I can read it.</think>\n<answer>1984</answer>"


def thyme_row(rounds: int) -> dict[str, Any]:
    """A row as in Thyme-SFT: pictures in base64, and one `<think>` around all rounds of code."""
    question = (
        f'<image>\nWhich year is on the sign?\n### User Image Path:** "{TRACE_PATH}"\n'
        '### User Image Size:** "400×300"\n### **Output Format (strict adherence required):**\n'
        "<think>Your detailed reasoning process, including any <code> </code>, should go here.</think>\n"
        "<answer>Answer to the user's question.</answer>"
    )
    return {
        "image": [base64.b64encode(photograph(rounds)).decode()] * (rounds + 1),
        "question": question,
        "response": "<think>I look closer.\n" + (LOOK + OUTPUT) * rounds + END,
    }


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `data/codev-sft` makes of Thyme's files with one, two and three rounds."""
    folder = tmp_path_factory.mktemp("thyme")
    names = ("wo_thinking_thyme_single_round", "2round", "3round")
    files = [parquet(folder / f"{name}.parquet", [thyme_row(k)]) for k, name in enumerate(names, start=1)]
    ended = vtune(
        "data", "import", "thyme", folder, "--out", folder / "out" / "thyme.parquet", "--strict", "--json"
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["kept"] == len(files)
    changes = settings("data", sources__thyme_sft__files=f"[{folder / 'out' / 'thyme.parquet'}]")
    ended = vtune("curate", "codev-sft", "--out", folder / "curated", *changes, "--json")
    assert ended.code == 0, ended.err
    return folder / "curated"


@pytest.fixture(scope="module")
def school(traces: Path, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of `sft/codev` on these traces."""
    out = tmp_path_factory.mktemp("school") / "run"
    changes = settings(
        "sft",
        model=tiny,
        data=f"[{traces / 'traces.parquet'}]",
        epochs=1.0,
        batch_size=2,
        images__max_pixels=12544,
        update__dtype="float32",
        update__threads=1,
        update__micro_tokens=4096,
        update__warmup_steps=0,
    )
    ended = vtune("sft", "--recipe", "codev", "--out", out, *changes, "--json")
    assert ended.code == 0, ended.err
    return out


def training(data: list[Path], out: Path, **more: object) -> list[str]:
    files = ", ".join(map(str, data))
    return ["rl", "--recipe", "codev", "--out", str(out), *settings("rl", data=f"[{files}]", **more)]


@pytest.fixture(scope="module")
def trained(
    curated: Path, judge: FakeJudge, school: Path, traces: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The run folder of one step of `rl/codev`, with a policy that knows everything."""
    (one_round,) = [t for t in read_trajectories(traces / "traces.parquet") if len(t.calls) == 1]
    taught = tuple(turn.content for turn in one_round.messages if turn.role == "assistant")
    out = tmp_path_factory.mktemp("trained") / "run"
    words = training(
        [curated / "samples.parquet"],
        out,
        model=school,
        steps=1,
        prompts_per_step=len(KEPT),
        group_size=2,
        rollout__engine="transformers",
        rollout__max_batch=4,
        reward__judge__base_url=judge.endpoint().base_url,
        images__max_pixels=12544,
        sandbox__seconds=120.0,
        update__dtype="float32",
        update__threads=1,
        update__micro_tokens=4096,
    )
    with pytest.MonkeyPatch.context() as patch:
        knows = frozenset(asked.text for asked in ASKED)
        draw_with(patch, lambda policy, **_: Obedient(policy.chat, knows, taught))
        ended = vtune(*words, "--json")
    assert ended.code == 0, ended.err
    return out


def drawn(run: Path) -> list[Trajectory]:
    (step,) = (run / "trajectories").iterdir()
    return list(read_trajectories(step))


def test_the_cold_start_learns_from_published_traces(traces: Path, school: Path) -> None:
    check_unchanged("data", "codev-sft", traces / "recipe.yaml")
    check_unchanged("sft", "codev", school / "recipe.yaml")
    assert sorted(len(trace.calls) for trace in read_trajectories(traces / "traces.parquet")) == [1, 2]
    (dropped,) = [json.loads(line) for line in (traces / "drops.jsonl").read_text().splitlines()]
    assert dropped["filter"] == "tool_rounds"
    assert {step for step, _ in numbers(school)} == {0}


def test_the_taught_form_with_one_pair_of_think_tags_earns_full_marks(trained: Path) -> None:
    taught = [found for found in drawn(trained) if found.rollout == 1 and found.calls]
    assert {found.source for found in taught} == {asked.source for asked in ASKED if asked.search}
    for found in taught:
        turns = [turn.content for turn in found.messages if turn.role == "assistant"]
        assert [turn.count("<think>") for turn in turns] == [1, 0]
        assert found.reward is not None
        assert found.reward.format == 1.0, found.reward.why
        assert found.reward.total == pytest.approx(1.8)


def test_the_data_recipe_writes_rows_for_code(curated: Path) -> None:
    check_unchanged("data", "codev-rl", curated / "recipe.yaml")
    samples = list(read_samples(curated / "samples.parquet"))
    assert sorted(sample.question for sample in samples) == sorted(asked.text for asked in KEPT)
    for sample in samples:
        assert sample.tools == ("python",)
        assert [turn.role for turn in sample.prompt] == ["user"]
    vstar = [sample for sample in samples if sample.source == "vstar"]
    assert all(sample.extra["published_tools"] == ["image_zoom_in_tool"] for sample in vstar)
    assert all(sample.extra["published_prompt"][0]["content"] == DEEPEYES_SYSTEM for sample in vstar)
    dropped = [json.loads(line) for line in (curated / "drops.jsonl").read_text().splitlines()]
    assert {(row["source"], row["filter"]) for row in dropped} == {
        ("vstar", "pass_rate"),
        ("thinklite", "external_knowledge"),
    }


def test_thinklite_keeps_the_sources_of_figure_7(curated: Path, trained: Path) -> None:
    sources = {asked.source for asked in KEPT}
    told = json.loads((curated / "curation.json").read_text())["result"]["data_sources"]
    assert set(told) == sources
    assert told["FigureQA"] == {"rows": 1, "share": 1 / len(KEPT)}
    assert {line.source for line in read_metrics(trained / "metrics.jsonl")} == sources | {"all"}


def test_an_obedient_policy_earns_full_marks_for_every_source(trained: Path, record_property: Record) -> None:
    check_unchanged("rl", "codev", trained / "recipe.yaml")
    trajectories = drawn(trained)
    assert len(trajectories) == 2 * len(KEPT)
    for number, whose in enumerate(("obedient", "taught")):
        record_earned(record_property, f"rl/codev, {whose}", [t for t in trajectories if t.rollout == number])
    search = {asked.source for asked in KEPT if asked.search}
    for found in trajectories:
        assert found.reward is not None
        earned = (found.reward.accuracy, found.reward.format, found.reward.tool)
        # §4.3: if no look is needed, the best policy makes none.
        looks = found.source in search
        assert earned == ((1.0, 1.0, 1.0) if looks else (1.0, 1.0, 0.0)), (found.source, found.reward.why)
        assert found.reward.total == pytest.approx(1.8 if looks else 1.3)


def test_the_policy_reads_only_codevs_prompt(trained: Path) -> None:
    for found in drawn(trained):
        system, user, *_ = found.messages
        assert (system.role, system.content) == ("system", CODEV_SYSTEM)
        assert user.content.count("### User Image Path:") == 1
        assert not {"image_zoom_in_tool", "<tool_call>", "boxed"} & set(re.findall(r"<?\w+>?", user.content))


def test_published_rows_are_refused_with_a_fix(published: dict[str, Path], tmp_path: Path) -> None:
    files = imported(published, tmp_path)
    ended = vtune(*training([files["vstar"]], tmp_path / "run"), "--dry-run")
    assert ended.code == 2
    assert "offers image_zoom_in_tool, but no section tools.zoom says how to run it" in ended.err
    assert "--tools" in ended.err


def test_an_import_with_tools_needs_no_curation(published: dict[str, Path], tmp_path: Path) -> None:
    files = imported(published, tmp_path, "--tools", "python")
    words = training([*files.values()], tmp_path / "run")
    ended = vtune(*words, "--dry-run", "--gpus", "8", "--gpu-memory", "141", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["check"]["samples"] == len(ASKED)


@pytest.fixture(scope="module")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the trained model's evaluation on V*."""
    folder = tmp_path_factory.mktemp("evaluated")
    data, out = make_vstar(folder / "vstar_bench", len(HABITS), (4000, 2000), BOX), folder / "out"
    suite = load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"data=[{data}]"])
    samples = list(read_records(suite))
    small = settings(
        "eval",
        dtype="float32",
        threads=1,
        images__max_pixels=12544,
        sandbox__seconds=120.0,
        data=f"[{data}]",
        published__rows="null",
    )
    with pytest.MonkeyPatch.context() as patch:
        draw_with(patch, lambda policy, **_: Looking(policy.chat, samples))
        ended = vtune("eval", "--suite", "vstar", "--model", trained, "--out", out, *small, "--json")
    assert ended.code == 0, ended.err
    check_unchanged("eval", "vstar", out / "suite.yaml")
    return out


def test_published_vstar_is_evaluated_and_audited(evaluated: Path) -> None:
    assert json.loads((evaluated / "results.json").read_text())["score"]["score"] == 5 / 8
    audited = json.loads(vtune("faithfulness", evaluated, "--json").out)["all"]
    assert {name: audited[name]["value"] for name in NUMBERS} == pytest.approx(NUMBERS)


def test_published_hrbench_is_evaluated_and_audited_by_a_judge(
    trained: Path, judge: FakeJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HR-Bench has no boxes: without a judge, there are no shares of looks as in CodeV's Table 5."""
    photographs = [picture(number, (4000, 2000), BOX) for number in range(2)]
    data = write_tsv(tmp_path / "hr_bench_4k.tsv", hrbench_rows(photographs))
    suite = load_recipe(find("hrbench-4k", "eval_suites"), EvalSuite, [f"data=[{data}]"])
    samples = list(read_records(suite))
    assert len(samples) == len(HABITS)
    draw_with(monkeypatch, lambda policy, **_: Looking(policy.chat, samples))
    small = settings("eval", dtype="float32", threads=1, images__max_pixels=12544, sandbox__seconds=120.0)
    out = tmp_path / "out"
    words = ["eval", "--suite", "hrbench-4k", "--model", trained, "--out", out]
    ended = vtune(
        *words,
        *small,
        *settings("eval", data=f"[{data}]", published__md5="null", published__rows="null"),
        "--json",
    )
    assert ended.code == 0, ended.err
    check_unchanged("eval", "hrbench-4k", out / "suite.yaml")
    assert json.loads(ended.out)["score"]["score"] == 5 / 8
    assert vtune("faithfulness", out, "--json").code == 1
    url = judge.endpoint().base_url
    ended = vtune("faithfulness", out, "--judge-url", url, "--judge-model", "judge", "--json")
    assert ended.code == 0, ended.err
    audited = json.loads(ended.out)["all"]
    assert {name: audited[name]["value"] for name in NUMBERS} == pytest.approx(NUMBERS)


def test_the_report_shows_all_runs_of_the_chain(school: Path, trained: Path, evaluated: Path) -> None:
    ended = vtune("report", school, trained, evaluated, "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    first, second = told["runs"]
    assert first["sources"]["all"]["loss"]["last"] > 0
    assert second["sources"]["vstar"]["reward_tool"]["last"] == 1.0
    (evaluation,) = told["evaluations"]
    assert evaluation["score"]["score"] == 5 / 8
