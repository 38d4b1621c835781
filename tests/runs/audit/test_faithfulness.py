import base64
import io
import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

import vtune.runs.agent.engines as vtune_engines
from tests.judge.server import Reply, serve
from tests.reward.build import TARGET, looks, sample
from tests.runs.commands import evaluation, setting, vtune
from tests.runs.habits import NUMBERS, Habits
from vtune.reward.audit import AuditRow
from vtune.runs.audit import faithfulness as faithfulness_run
from vtune.runs.audit.faithfulness import unanswered
from vtune.schema.box import Box
from vtune.schema.parquet import read_samples, read_trajectories, write_samples, write_trajectories
from vtune.schema.reward import Reward


@pytest.fixture(scope="module")
def evaluated(tiny: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an evaluation of `Habits`."""
    out = tmp_path_factory.mktemp("eval") / "out"
    data = lens / "heldout.parquet"
    samples = list(read_samples(data))
    settings = setting(seed=3, rollout__max_new_tokens=90, rollout__max_tokens=900)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Habits(policy.chat, samples))
        ended = vtune(*evaluation(tiny, data, out, *settings))
    assert ended.code == 0, ended.err
    return out


def audited(*words: str | Path) -> Any:
    ended = vtune("faithfulness", *words, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_an_audit_of_an_evaluation_matches_the_evaluation(evaluated: Path) -> None:
    said = json.loads((evaluated / "results.json").read_text())["faithfulness"]
    found = audited(evaluated)
    assert found["all"] == said
    assert found["sources"] == {"lens": said}
    assert found["files"] == {"trajectories.parquet": said}
    assert found["settings"] == str(evaluated / "suite.yaml")
    assert {name: found["all"][name]["value"] for name in NUMBERS} == pytest.approx(NUMBERS)


def test_an_older_folder_is_audited_with_its_former_settings(evaluated: Path, tmp_path: Path) -> None:
    suite = yaml.safe_load((evaluated / "suite.yaml").read_text())
    for younger in ("format", "data_from", "choices", "scorer", "tools"):
        del suite[younger]
    for younger in ("format_rule", "iou", "service"):
        del suite["reward"][younger]
    del suite["sandbox"]["isolation"]
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    (tmp_path / "trajectories.parquet").symlink_to(evaluated / "trajectories.parquet")
    assert audited(tmp_path)["all"] == audited(evaluated)["all"]


def test_a_step_of_several_processes_is_audited_as_one(evaluated: Path, tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").symlink_to(evaluated / "suite.yaml")
    every = list(read_trajectories(evaluated / "trajectories.parquet"))
    for step in (0, 4):
        for rank in (0, 1):
            file = tmp_path / "trajectories" / f"step-{step:06d}-rank-{rank}.parquet"
            write_trajectories(file, every[rank::2])
    files = audited(tmp_path)["files"]
    assert list(files) == ["step-000000.parquet", "step-000004.parquet"]
    whole = audited(evaluated)["all"]
    for numbers in files.values():
        assert (numbers["n"], numbers["clusters"]) == (whole["n"], whole["clusters"])
        assert numbers["accuracy"]["value"] == pytest.approx(whole["accuracy"]["value"])


def test_a_single_file_is_audited_against_the_named_samples(
    evaluated: Path, lens: Path, tmp_path: Path
) -> None:
    file = tmp_path / "some.parquet"
    write_trajectories(file, read_trajectories(evaluated / "trajectories.parquet"))
    found = audited(file, "--data", lens / "heldout.parquet")
    assert found["settings"] == "the shipped recipe codev"
    assert {name: found["all"][name]["value"] for name in NUMBERS} == pytest.approx(NUMBERS)


def test_unscored_trajectories_are_scored_first(evaluated: Path, lens: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    bare = [
        replace(t, reward=None, tool_scores=(), calls=tuple(replace(call, flags=()) for call in t.calls))
        for t in read_trajectories(evaluated / "trajectories.parquet")
    ]
    assert len(bare) == 6
    write_trajectories(file, [*bare[:3], *list(read_trajectories(evaluated / "trajectories.parquet"))[3:]])
    found = audited(file, "--data", lens / "heldout.parquet")
    assert {name: found["all"][name]["value"] for name in NUMBERS} == pytest.approx(NUMBERS)


def test_a_folder_of_rl_is_audited_file_by_file(evaluated: Path, lens: Path, tmp_path: Path) -> None:
    from vtune.config import dump_recipe, find, load_recipe
    from vtune.runs.train.rl_recipe import RLRecipe

    run = tmp_path / "run"
    (run / "trajectories").mkdir(parents=True)
    given = [f"data=[{lens / 'heldout.parquet'}]"]
    recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, given)
    (run / "recipe.yaml").write_text(dump_recipe(recipe))
    everything = list(read_trajectories(evaluated / "trajectories.parquet"))
    for step, part in ((0, everything[:3]), (10, everything[2:3])):
        write_trajectories(run / "trajectories" / f"step-{step:06d}.parquet", part)
    found = audited(run)
    assert {name: part["accuracy"]["value"] for name, part in found["files"].items()} == {
        "step-000000.parquet": pytest.approx(2 / 3),
        "step-000010.parquet": 0.0,
    }
    assert found["all"]["n"] == 4
    # A copy beside a file is the user's: its content counts once.
    write_trajectories(run / "trajectories" / "step-000000-good.parquet", everything[:3])
    again = audited(run)
    assert (again["all"]["n"], again["files"].keys()) == (4, found["files"].keys())
    one = audited(run / "trajectories/step-000010.parquet")
    assert (one["all"]["n"], one["settings"]) == (1, str(run / "recipe.yaml"))


def test_a_folder_that_cannot_be_audited_is_refused_with_a_fix(
    evaluated: Path, lens: Path, tmp_path: Path
) -> None:
    file = tmp_path / "some.parquet"
    write_trajectories(file, read_trajectories(evaluated / "trajectories.parquet"))
    write_trajectories(tmp_path / "none.parquet", [])
    data = ["--data", lens / "heldout.parquet"]
    bare = [replace(one, evidence=()) for one in read_samples(lens / "heldout.parquet")]
    write_samples(tmp_path / "bare.parquet", bare)
    half = tmp_path / "half"
    half.mkdir()
    (half / "suite.yaml").write_text((evaluated / "suite.yaml").read_text())
    part = tmp_path / "part"
    drawn = list(read_trajectories(evaluated / "trajectories.parquet"))
    write_trajectories(part / "trajectories/from-00000000.parquet", drawn[:4])
    write_trajectories(part / "ended/00000004-0000.parquet", drawn[4:5])
    (part / "suite.yaml").symlink_to(evaluated / "suite.yaml")
    (part / "started.json").write_text('{"total": 6}')
    broken = tmp_path / "broken"
    failed = [replace(one, stop_reason="error") for one in drawn[2:]]
    write_trajectories(broken / "trajectories/from-00000000.parquet", drawn[:2] + failed)
    (broken / "suite.yaml").symlink_to(evaluated / "suite.yaml")
    (broken / "started.json").write_text(f'{{"total": {len(drawn)}}}')
    for words, what, fix in (
        ([half], "the evaluation is not finished", "with --resume"),
        ([part], "the evaluation is not finished: 5 of 6 rollouts are generated", "with --resume"),
        (
            [broken],
            f"all {len(drawn)} rollouts are generated, {len(failed)} of them failed, but its results are not",
            "with --resume, which generates again what failed",
        ),
        ([tmp_path], "there are no trajectories", "a folder of `vtune rl` or `vtune eval`"),
        ([tmp_path / "missing.parquet", *data], "there is no file or folder", "give a run folder"),
        ([lens / "heldout.parquet"], "a file of samples, not of trajectories", "these samples with --data"),
        ([file], "which samples these trajectories answer", "--data"),
        ([file, "--data", lens / "train.parquet"], "no sample has the id", "--data"),
        ([file, "--data", tmp_path / "gone.parquet"], "gone.parquet: there is no such file", "--data PATH"),
        (
            [file, *data, "--data", tmp_path / "bare.parquet"],
            "two different samples have",
            "the rollouts used",
        ),
        ([tmp_path / "none.parquet", *data], "no trajectory answers", "search_abilities is [visual_search"),
        ([file, *data, "--judge-url", "http://x"], "--judge-model", "give both"),
    ):
        ended = vtune("faithfulness", *words)
        assert ended.code == 2, ended.err
        assert what in ended.err
        assert fix in ended.err


@pytest.fixture
def unboxed(tmp_path: Path) -> list[str | Path]:
    """Arguments that audit four looks at a picture without evidence boxes, which only a model can judge."""
    write_samples(tmp_path / "samples.parquet", [sample()])
    write_trajectories(tmp_path / "some.parquet", [looks(TARGET)] * 4)
    return [tmp_path / "some.parquet", "--data", tmp_path / "samples.parquet", "--judge-model", "judge"]


def test_questions_that_need_no_look_are_counted_by_source(
    evaluated: Path, lens: Path, tmp_path: Path
) -> None:
    file, data = tmp_path / "some.parquet", tmp_path / "samples.parquet"
    write_trajectories(file, read_trajectories(evaluated / "trajectories.parquet"))
    samples = list(read_samples(lens / "heldout.parquet"))
    answered = [trajectory.sample_id for trajectory in read_trajectories(file)]
    plain = {
        one.id: replace(one, evidence=(), ability="", source="chat")
        for one in samples
        if one.id == answered[0]
    }
    write_samples(data, [plain.get(one.id, one) for one in samples])
    found = audited(file, "--data", data)
    assert found["need_no_look"] == {"chat": answered.count(answered[0])}
    assert found["all"]["n"] == len(answered) - answered.count(answered[0])
    assert audited(evaluated)["need_no_look"] == {}


def test_an_audit_with_a_dead_judge_fails_and_says_why(
    unboxed: list[str | Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serve(401) as judge:
        ended = vtune("faithfulness", *unboxed, "--judge-url", judge.endpoint().base_url)
    assert ended.code == 1, ended.err
    assert "none of the 4 trajectories with tool calls could be audited" in ended.err
    assert "4 of 4: the judge gave no reply: AuthenticationError" in ended.err


def test_an_audit_that_judges_nothing_keeps_earlier_results(evaluated: Path, tmp_path: Path) -> None:
    for name in ("suite.yaml", "trajectories.parquet"):
        (tmp_path / name).symlink_to(evaluated / name)
    audited(tmp_path)
    kept = (tmp_path / "audit.json").read_text()
    ended = vtune("faithfulness", tmp_path, "--looks", "passages")
    assert ended.code == 1
    assert "could be audited" in ended.err
    assert (tmp_path / "audit.json").read_text() == kept


def test_an_audit_without_shares_keeps_earlier_shares(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("suite.yaml", "trajectories.parquet"):
        (tmp_path / name).symlink_to(evaluated / name)
    audited(tmp_path)
    kept = (tmp_path / "audit.json").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(faithfulness_run, "nobody_audited", lambda _: None)  # as if a judge had died midway
        ended = vtune("faithfulness", tmp_path, "--looks", "passages")
    assert ended.code == 0
    assert f"{tmp_path} keeps the shares of an earlier audit; this one has none" in ended.err
    assert (tmp_path / "audit.json").read_text() == kept


def test_unjudgeable_questions_get_buckets_but_no_shares(tmp_path: Path) -> None:
    write_samples(tmp_path / "samples.parquet", [sample()])
    everything = [looks()] * 96 + [looks(TARGET)] * 3 + [looks(TARGET, (0, 0, 30, 30))]
    # Already scored; otherwise the recipe's judge, which is down, would be asked repeatedly.
    right = Reward(total=None, accuracy=1.0, format=1.0, tool=None, why="")
    write_trajectories(tmp_path / "some.parquet", [replace(one, reward=right) for one in everything])
    words = ["faithfulness", tmp_path / "some.parquet", "--data", tmp_path / "samples.parquet"]
    words += ["--looks", "boxes"]
    ended = vtune(*words, "--json")
    assert ended.code == 1, "four of a hundred are within max_unscored, and all that there is to audit"
    assert "none of the 4 trajectories with tool calls could be audited" in ended.err
    found = json.loads(ended.out)["all"]
    looked = [name for name in found if name.startswith(("faithful", "unfaithful", "shown", "small"))]
    assert len(looked) == 8
    assert {found[name] for name in looked} == {None}
    assert found["no_shares"] == (
        "4 of 4 trajectories with tool calls could not be audited: no evidence boxes"
    )
    assert [bucket["share"]["value"] for bucket in found["buckets"]] == [0.96, 0.03, 0.01, 0.0]
    told = vtune(*words)
    assert told.out.startswith("4 of 4 trajectories with tool calls could not be audited: no evidence boxes")
    assert "nothing was judged" in told.out


def test_box_based_numbers_are_marked_as_not_comparable_with_the_papers(evaluated: Path) -> None:
    found = audited(evaluated)
    assert found["judged_by"] == {"boxes": 4, "model": 0}
    assert found["note"] == (
        "4 of 4 by boxes (ours): not comparable with CodeV's Table 5, where a model judges"
    )
    assert "not comparable with CodeV's Table 5" in vtune("report", evaluated).out


def test_a_judge_needs_no_key_but_gets_one_that_is_set(
    unboxed: list[str | Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in (None, "secret"):
        if key is None:
            monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        else:
            monkeypatch.setenv("OPENAI_API_KEY", key)
        with serve("1") as judge:
            found = audited(*unboxed, "--judge-url", judge.endpoint().base_url)
        assert judge.keys == {f"Bearer {key or 'none'}"}
        assert found["all"]["shown_of_all"]["value"] == 1.0
        assert found["unscored"] == {}


def test_reasons_for_left_out_trajectories_are_reported(evaluated: Path, tmp_path: Path) -> None:
    *most, last = read_trajectories(evaluated / "trajectories.parquet")
    lost = replace(last, reward=replace(last.reward, accuracy=None)) if last.reward else last
    suite = (evaluated / "suite.yaml").read_text()
    assert "max_unscored: 0.05" in suite
    (tmp_path / "suite.yaml").write_text(suite.replace("max_unscored: 0.05", "max_unscored: 0.5"))
    write_trajectories(tmp_path / "trajectories.parquet", [*most, lost])
    found = audited(tmp_path)
    assert found["unscored"] == {"the answer is unscored": 1}
    assert found["all"]["n_unscored"] == 1


BESIDE: Box = (0, 0, 30, 30)
WHOLE: Box = (0, 0, 100, 100)


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Right answers of six questions: two with a look at the target, two beside it, two at the whole."""
    folder = tmp_path_factory.mktemp("looked")
    names = [f"quiz/{number}" for number in range(6)]
    write_samples(folder / "samples.parquet", [sample(TARGET, id=name) for name in names])
    right = Reward(total=None, accuracy=1.0, format=1.0, tool=None, why="")
    boxes = (TARGET, TARGET, BESIDE, BESIDE, WHOLE, WHOLE)
    some = [replace(looks(box), sample_id=name, reward=right) for name, box in zip(names, boxes, strict=True)]
    flagged = [replace(one, calls=(replace(one.calls[0], flags=("whole_image",)),)) for one in some[4:]]
    write_trajectories(folder / "some.parquet", [*some[:4], *flagged])
    return folder


def held_against_boxes(looked: Path, *replies: Reply) -> Any:
    """The audit of `looked` by boxes and by judges that always give the same reply."""
    with ExitStack() as stack:
        judges = [stack.enter_context(serve(reply)) for reply in replies]
        words: list[str | Path] = ["--data", looked / "samples.parquet", "--looks", "both"]
        for number, judge in enumerate(judges):
            words += ["--judge-url", judge.endpoint().base_url, "--judge-model", f"judge-{number}"]
        return audited(looked / "some.parquet", *words)


def sees(request: dict[str, Any]) -> str:
    """A judge that recognises the target's picture: it is smaller than the one next to it."""
    _, _, data = request["messages"][-1]["content"][-1]["image_url"]["url"].partition("base64,")
    return "1" if Image.open(io.BytesIO(base64.b64decode(data))).width < 100 else "0"


def test_a_named_judge_is_compared_with_boxes(looked: Path) -> None:
    found = held_against_boxes(looked, sees)
    judge = found["judges"]["model"]
    assert judge["agreement"]["n"] == 4
    assert (judge["agreement"]["both"], judge["agreement"]["neither"]) == (2, 2)
    assert judge["agreement"]["kappa"] == 1.0
    assert judge["sensitivity"]["value"] == judge["specificity"]["value"] == 1.0
    assert list(judge["by_size"]) == ["1 to 10 %"]
    assert judge["corrected"]["share"]["value"] == judge["corrected"]["apparent"] == 0.5
    assert judge["corrected"]["share"]["low"] < 0.25
    assert set(found["spent"]) == {"boxes", "model"}


def test_looks_not_sent_to_a_judge_do_not_count_for_it(looked: Path) -> None:
    """By rule a whole picture is not a look; there even a random judge would be right."""
    found = held_against_boxes(looked, "1")
    judge = found["judges"]["model"]
    assert judge["agreement"] == found["agreement"]
    assert (found["agreement"]["n"], found["by_rule"]) == (4, 2)
    assert (judge["sensitivity"]["value"], judge["specificity"]["value"]) == (1.0, 0.0)
    assert (judge["agreement"]["kappa"], judge["n"]) == (0.0, 4)
    assert "hardly tell looks apart" in judge["warning"]
    assert found["by_model"]["all"]["faithful_of_correct"]["value"] == pytest.approx(4 / 6)


def test_a_resumed_audit_asks_only_unanswered_questions(evaluated: Path, tmp_path: Path) -> None:
    for name in ("suite.yaml", "trajectories.parquet"):
        (tmp_path / name).symlink_to(evaluated / name)
    words = [tmp_path, "--looks", "model", "--judge-model", "org/judge"]
    with serve("1", 401) as judge:
        ended = vtune("faithfulness", *words, "--judge-url", judge.endpoint().base_url, "--json")
    assert ended.code == 1
    assert "the judge gave no reply about 1 of 4 trajectories with tool calls" in ended.err
    assert "run the same command again once the judge replies" in ended.err
    assert sum(json.loads(ended.out)["unscored"].values()) == 1
    assert not (tmp_path / "audit.json").exists(), "shares of an earlier audit would stay"
    with serve("1") as judge:
        url = judge.endpoint().base_url
        second = audited(*words, "--judge-url", url)
        assert (len(judge.requests), second["unscored"]) == (1, {})
        assert second["spent"]["model"]["input_tokens"] == 20, "what the first has spent is counted"
        again = vtune("faithfulness", *words, "--judge-url", url, "--latex")
        assert len(judge.requests) == 1, "an audit that is repeated, as another table, pays for nothing"
    assert "reusing 2 replies from " in again.err
    assert "remove that folder to ask again" in again.err


def test_a_judges_results_are_stored_under_its_name(evaluated: Path, tmp_path: Path) -> None:
    for name in ("suite.yaml", "trajectories.parquet"):
        (tmp_path / name).symlink_to(evaluated / name)
    (tmp_path / "results.json").write_text((evaluated / "results.json").read_text())
    words = [tmp_path, "--looks", "model", "--judge-model", "org/judge"]
    with serve("1") as judge:
        url = judge.endpoint().base_url
        found = audited(*words, "--judge-url", url)
    assert found["note"] == "by org/judge; CodeV's Table 5 is by GPT-4o"
    asked = found["asked"]["model"]
    assert (asked["model"], asked["base_url"], asked["temperature"]) == ("org/judge", url, 0.0)
    assert (len(asked["prompt"]), asked["replies_before"]) == (64, 0)
    kept = json.loads((tmp_path / "audit.json").read_text())
    for part in ("all", "sources", "asked", "judged_by", "spent", "looks", "note"):
        assert kept[part] == found[part]
    told = vtune("report", tmp_path)
    assert told.code == 0, told.err
    share = 100 * found["all"]["faithful_of_correct"]["value"]
    assert f"{share:.1f} % of the right answers rest on a call that shows what was asked for" in told.out
    assert "by org/judge" in told.out
    audited(tmp_path)
    kept = json.loads((tmp_path / "audit.json").read_text())
    assert kept["note"].startswith("4 of 4 by boxes")
    assert "asked" not in kept, "shares are of one audit"


def test_a_silent_judge_is_not_blamed_for_what_others_left_out() -> None:
    def row(number: int, *, silent: bool = False, why: str = "") -> AuditRow:
        return AuditRow(
            sample_id=str(number), source="q", cluster=str(number), correct=True, calls=1, flagged=0,
            any_faithful=None if why else True, silent=silent, why=why,
        )  # fmt: skip

    good = [row(number) for number in range(10)]
    quiet = [row(number, silent=True, why="no reply") for number in range(10, 14)]
    unread = [row(number, why="not 1 or 0") for number in range(14, 20)]
    failed = unanswered([*good, *quiet], 0.1, kept=True)
    assert failed is not None
    assert "the judge gave no reply about 4 of 14 trajectories with tool calls" in failed.what
    assert failed.fix.endswith("only questions without a reply are asked")
    without = unanswered([*good, *quiet], 0.1, kept=False)
    assert without is not None
    assert "asks only" not in without.fix, "of a bare file nothing is kept"
    assert unanswered([*good, *quiet, *unread], 0.1, kept=True) is None, "there would be no shares either"
    assert unanswered([*good, *quiet], 0.5, kept=True) is None


def test_the_verdict_on_each_trajectory_is_kept(evaluated: Path, tmp_path: Path) -> None:
    for name in ("suite.yaml", "trajectories.parquet"):
        (tmp_path / name).symlink_to(evaluated / name)
    with serve("0") as judge:
        words = ["--looks", "both", "--judge-model", "org/judge"]
        found = audited(tmp_path, *words, "--judge-url", judge.endpoint().base_url)
    lines = [json.loads(line) for line in (tmp_path / "audit-verdicts.jsonl").read_text().splitlines()]
    stored = list(read_trajectories(evaluated / "trajectories.parquet"))
    assert [(one["sample_id"], one["rollout"]) for one in lines] == [(t.sample_id, t.rollout) for t in stored]
    right = [one for one in lines if one["correct"]]
    share = sum(one["faithful"] for one in right) / len(right)
    assert share == pytest.approx(found["all"]["faithful_of_correct"]["value"])
    assert [one["faithful_by"]["boxes"] for one in lines] == [one["faithful"] for one in lines]
    assert not any(one["faithful_by"]["model"] for one in lines)
    assert {one["by"] for one in lines} == {"boxes"}


def test_the_reason_why_a_judge_has_no_shares_is_shown_and_stored(evaluated: Path, tmp_path: Path) -> None:
    for name in ("suite.yaml", "trajectories.parquet"):
        (tmp_path / name).symlink_to(evaluated / name)
    with serve("1", "hmm") as judge:
        words = ["--looks", "both", "--judge-model", "j", "--judge-url", judge.endpoint().base_url]
        ended = vtune("faithfulness", tmp_path, *words)
    assert "no shares by the model" in " ".join(ended.out.split()), ended.err
    assert "'hmm'" in ended.out
    lines = [json.loads(line) for line in (tmp_path / "audit-verdicts.jsonl").read_text().splitlines()]
    unknown = [one for one in lines if one["faithful_by"]["model"] is None]
    assert unknown
    assert all("'hmm'" in one["why_by"]["model"] and "boxes" not in one["why_by"] for one in unknown)


def test_a_judge_with_constant_verdicts_gives_a_warning(looked: Path) -> None:
    found = held_against_boxes(looked, "0")["judges"]["model"]
    assert found["corrected"]["youden"] == 0.0
    assert found["corrected"]["share"] is None
    assert "hardly tell looks apart" in found["warning"]


def test_several_judges_decide_by_majority(evaluated: Path, looked: Path) -> None:
    found = held_against_boxes(looked, sees, "0", sees)
    assert list(found["judges"]) == ["judge-0", "judge-1", "judge-2", "majority"]
    kappas = [one["agreement"]["kappa"] for one in found["judges"].values()]
    assert kappas == [1.0, 0.0, 1.0, 1.0]
    assert found["by_model"]["all"]["faithful_of_correct"]["value"] == pytest.approx(2 / 6)
    told = vtune("faithfulness", evaluated, "--looks", "auto", *("--judge-model", "a", "--judge-model", "b"))
    assert told.code == 2
    two = ["--judge-url", "http://localhost:1/v1", "--judge-model", "a", "--judge-model", "b"]
    told = vtune("faithfulness", evaluated, *two)
    assert told.code == 2
    assert "--looks auto asks one model, and 2 are named" in told.err
    assert "--looks both" in told.err


def test_the_terminal_shows_how_far_judges_can_be_trusted(looked: Path) -> None:
    words = ["faithfulness", looked / "some.parquet", "--data", looked / "samples.parquet", "--looks", "both"]
    with serve("0") as judge:
        ended = vtune(*words, "--judge-url", judge.endpoint().base_url, "--judge-model", "j")
    assert ended.code == 0, ended.err
    for text in (
        "judges of looks against boxes",
        "warning: model: the judge can hardly tell looks apart",
        "Youden's J",
    ):
        assert text in ended.out
    assert "2 more trajectories have calls that the model was not asked about" in ended.out
    assert "model: j at http://127.0.0.1" in ended.out


def test_a_model_judges_every_call_on_request(tmp_path: Path) -> None:
    write_samples(tmp_path / "samples.parquet", [sample()])
    right = Reward(total=None, accuracy=1.0, format=1.0, tool=None, why="")
    write_trajectories(tmp_path / "some.parquet", [looks(TARGET, (0, 0, 30, 30), reward=right)])
    words = [tmp_path / "some.parquet", "--data", tmp_path / "samples.parquet", "--judge-model", "judge"]
    for more, asked, helpful in (([], 1, None), (["--every-call"], 2, 1.0)):
        with serve("1") as judge:
            found = audited(*words, "--judge-url", judge.endpoint().base_url, *more)
        assert len(judge.requests) == asked
        share = found["calls"]["all"]["helpful_of_calls"]
        assert (share and share["value"]) == helpful
        assert found["calls"]["all"]["first_useful"]["value"] == 1.0
