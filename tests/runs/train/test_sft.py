import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import vtune.runs.train.sft as training
from tests.runs.commands import numbers, same_weights, setting, sft, vtune
from tests.runs.launched import eventually
from vtune.config import find, load_recipe
from vtune.errors import DataError
from vtune.models.pictures import PictureReader, Pixels
from vtune.models.policy import Policy, load_chat
from vtune.models.source import resolved
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.runs.view.watch import watched
from vtune.schema.message import Picture
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.update.deepspeed import Trainer
from vtune.update.ranks import Ranks

pytestmark = pytest.mark.train


def losses(run: Path) -> list[float]:
    return [values["loss"] for _, values in sorted(numbers(run).items())]


def test_the_loss_falls(cold_start: Path) -> None:
    found = losses(cold_start)
    assert len(found) == 48
    assert found[-1] < 0.1 * found[0]
    result = json.loads((cold_start / "result.json").read_text())
    assert (result["steps"], result["traces"]) == (48, 32)
    assert result["loss"] == found[-1]
    assert Path(result["model"]).name == "step-000048"


@pytest.mark.parametrize(
    ("epochs", "traces", "steps"), [(0.7, 90, 7), (2.3, 90, 23), (0.57, 900, 57), (3.0, 9, 3)]
)
def test_a_share_of_an_epoch_loses_no_batch_to_rounding(epochs: float, traces: int, steps: int) -> None:
    settings = (f"epochs={epochs}", "batch_size=9")
    assert (
        training.steps_of(load_recipe(find("codev", "recipes.sft"), SFTRecipe, settings), traces=traces)
        == steps
    )


def test_the_first_process_alone_reads_the_traces_and_checks_the_model(
    lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (f"model={tmp_path / 'nowhere'}", f"data=['{lens / 'traces.parquet'}']", "epochs=1.0")
    recipe = load_recipe(find("codev", "recipes.sft"), SFTRecipe, (*settings, "batch_size=8"))

    def trained(recipe: SFTRecipe, suites: object, out: Path, ranks: Ranks, steps: int, **_: Any) -> Any:
        return {"rank": ranks.rank, "steps": steps}

    monkeypatch.setattr(training, "_train", trained)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with monkeypatch.context() as patch:
        patch.setattr(training, "read_trajectories", None)
        ran = training.run_sft(recipe, tmp_path / "run", resume=False)
    assert ran == {"traces": 32, "rank": 1, "steps": 4}
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(DataError, match="nowhere"):
        training.run_sft(recipe, tmp_path / "run", resume=False)


def test_a_run_writes_what_it_was_asked_and_where_it_ran(cold_start: Path, lens: Path) -> None:
    assert "learning_rate: 0.0015" in (cold_start / "recipe.yaml").read_text()
    environment = json.loads((cold_start / "environment.json").read_text())
    assert environment["packages"]["torch"]
    assert list(environment["data"]) == [str(lens / "traces.parquet")]
    assert environment["steps"] == watched(cold_start)["total"] == 48
    assert load_chat(str(cold_start / "checkpoints/newest")).banned_ids


def test_an_interrupted_sft_run_resumes_with_the_same_losses(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    twelve = setting(epochs=3.0, batch_size=8, checkpoints__every=6)
    assert vtune(*sft(tiny, lens / "traces.parquet", unbroken, *twelve)).code == 0
    words = sft(tiny, lens / "traces.parquet", broken, *twelve)
    step, done = Trainer.step, []

    def break_down(self: Trainer, items: Any) -> Any:
        done.append(items)
        if len(done) == 9:
            raise OSError("the disk is gone")
        return step(self, items)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", break_down)
        with pytest.raises(OSError, match="the disk is gone"):
            vtune(*words)
    assert len(losses(broken)) == 8
    for step, left in ((13, "steps 1 to 12 are left"), (6, "steps 7 to 12 are left")):
        refused = vtune(*words, "--resume", "--profile", str(step))
        assert (refused.code, left in refused.err) == (2, True), refused.err
    assert vtune(*words, "--resume", "--profile", "12").code == 0
    assert (broken / "profile/step-000012-rank-0.json.gz").stat().st_size
    assert len(losses(broken)) == 12
    assert numbers(broken) == numbers(unbroken)
    assert same_weights(*(run / "checkpoints/newest" for run in (broken, unbroken)))
    # Nothing is left to do, and this is reported.
    again = vtune(*words, "--resume", "--json")
    assert (again.code, json.loads(again.out)["loss"]) == (0, None)
    assert "all 12 steps are done, nothing is left to train" in again.err
    assert numbers(broken) == numbers(unbroken)


def test_a_finished_run_resumes_with_more_epochs(tiny: Path, lens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = sft(tiny, lens / "traces.parquet", run)
    assert vtune(*words, *setting(epochs=1.0, batch_size=8, checkpoints__every=6)).code == 0
    assert len(losses(run)) == 4
    longer = [*words, *setting(epochs=2.0, batch_size=8, checkpoints__every=6)]
    dry = vtune(*longer, "--resume", "--dry-run")
    assert dry.code == 0, dry.err
    ended = vtune(*longer, "--resume", "--json")
    assert ended.code == 0, ended.err
    assert f"{run} is extended: epochs 1 -> 2" in ended.err
    assert len(losses(run)) == 8
    environment = json.loads((run / "environment.json").read_text())
    assert (environment["extended"], environment["steps"]) == (["epochs 1 -> 2"], 8)
    assert json.loads(ended.out)["model"].endswith("step-000008")
    # The folder of a run serves as a model: that of its newest checkpoint.
    newest = (run / "checkpoints/newest").resolve()
    assert resolved(str(run)) == resolved(str(run / "checkpoints/newest")) == str(newest)
    again = vtune(*sft(run, lens / "traces.parquet", tmp_path / "next", "--dry-run", "--json"))
    assert again.code == 0, again.err
    assert json.loads(again.out)["check"]["plan"]["shape"].startswith(str(newest / "config.json"))


def test_a_run_without_a_checkpoint_is_not_a_model(lens: Path, tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/recipe.yaml").write_text("seed: 0\n")
    ended = vtune(*sft(tmp_path / "begun", lens / "traces.parquet", tmp_path / "run", "--dry-run"))
    assert ended.code == 2
    assert "the run has written no checkpoint yet" in ended.err


def test_a_too_long_trace_is_an_error_and_not_truncated(tiny: Path, lens: Path, tmp_path: Path) -> None:
    ended = vtune(*sft(tiny, lens / "traces.parquet", tmp_path / "run", *setting(max_tokens=50)))
    assert ended.code == 2
    assert "longer than max_tokens (50)" in ended.err
    assert "trace of 'lens/1/0/traces/" in ended.err
    assert not (tmp_path / "run").exists()
    planned = vtune(
        *sft(tiny, lens / "traces.parquet", tmp_path / "run", *setting(max_tokens=50)), "--dry-run"
    )
    assert planned.code == 2
    assert "longer than max_tokens (50)" in planned.err


def test_all_too_long_traces_are_counted_and_one_new_limit_suffices(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_), file = read_trajectories(lens / "traces.parquet"), tmp_path / "traces.parquet"
    ends = [f"<think>{'so ' * words}</think>{first.messages[-1].content}" for words in (1, 600, 900, 700)]
    turns = [(*first.messages[:-1], replace(first.messages[-1], content=end)) for end in ends]
    write_trajectories(file, [replace(first, messages=one) for one in turns])
    words = sft(tiny, file, tmp_path / "run", "--dry-run", *setting(epochs="null", steps=1, batch_size=1))
    # The longest may come last in the order of training.
    monkeypatch.setattr(training, "MEASURED", 4)
    refused = vtune(*words, *setting(max_tokens=500))
    assert refused.code == 2
    assert "3 of 4 traces are longer than max_tokens (500), the longest" in refused.err
    (longest,) = re.findall(r"raise max_tokens to (\d+) \(", refused.err)
    assert vtune(*words, *setting(max_tokens=int(longest) - 1)).code == 2
    assert vtune(*words, *setting(max_tokens=longest)).code == 0
    monkeypatch.setattr(training, "COUNTED", 1)
    few = vtune(*words, *setting(max_tokens=500))
    assert "1 of 1 traces looked at is longer than max_tokens (500)" in few.err
    assert " at least (" in few.err


def test_a_run_that_met_a_too_long_trace_resumes_with_a_higher_limit(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, (first, *_) = tmp_path / "run", read_trajectories(lens / "traces.parquet")
    long = replace(first.messages[-1], content=f"<think>{'so ' * 600}</think>{first.messages[-1].content}")
    write_trajectories(
        tmp_path / "traces.parquet", [first, replace(first, messages=(*first.messages[:-1], long))]
    )
    monkeypatch.setattr(training, "MEASURED", 0)
    short = setting(epochs="null", steps=4, batch_size=1, checkpoints__every=1, max_tokens=500)
    words = sft(tiny, tmp_path / "traces.parquet", run, *short)
    ended = vtune(*words)
    assert (ended.code, "longer than max_tokens (500)" in ended.err) == (2, True), ended.err
    assert "--resume" in ended.err
    assert "1 of 2 traces is longer" in ended.err
    assert vtune(*words, "--resume").code == 2
    ended = vtune(*words, "--resume", *setting(max_tokens=2000))
    assert ended.code == 0, ended.err
    assert len(losses(run)) == 4


def test_a_folder_that_holds_a_run_is_refused_before_the_data_are_read(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("")
    ended = vtune(*sft(tiny, tmp_path / "nowhere.parquet", tmp_path))
    assert ended.code == 2
    assert "holds a run already" in ended.err


def test_too_few_traces_for_a_batch_are_refused_before_the_start(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    words = sft(tiny, lens / "traces.parquet", tmp_path / "run", *setting(batch_size=900))
    ended = vtune(*words)
    assert ended.code == 2
    assert "do not fill one batch of 900" in ended.err
    assert not (tmp_path / "run").exists()


def test_a_file_of_samples_is_refused_as_traces(tiny: Path, lens: Path, tmp_path: Path) -> None:
    ended = vtune(*sft(tiny, lens / "train.parquet", tmp_path / "run"))
    assert ended.code == 2
    assert f"{lens / 'train.parquet'}" in ended.err
    assert "no column `sample_id`" in ended.err
    assert "it is a file of samples; give a file of traces" in ended.err
    assert not (tmp_path / "run").exists()


def test_a_broken_trace_is_named_before_the_start(tiny: Path, lens: Path, tmp_path: Path) -> None:
    found = list(read_trajectories(lens / "traces.parquet"))
    found[3] = replace(found[3], messages=found[3].messages[:1])
    data = tmp_path / "broken.parquet"
    write_trajectories(data, found)
    ended = vtune(*sft(tiny, data, tmp_path / "run"))
    assert ended.code == 2
    for part in ("must end with an assistant turn", f"{data}, row 3", "fix"):
        assert part in ended.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (setting(epochs="null", steps=3, update__warmup_steps=3), 0, '"steps": 3'),
        (setting(steps=3), 2, "give epochs or steps"),
        (setting(epochs="null"), 2, "give epochs or steps"),
        (setting(update__warmup_steps=48), 0, ""),
        (
            setting(update__warmup_steps=49),
            0,
            "warning: update.warmup_steps is 49, and the run has 48 updates",
        ),
    ],
)
def test_a_run_has_epochs_or_steps_and_a_warm_up_beyond_its_end_is_told(
    tiny: Path, lens: Path, tmp_path: Path, change: list[str], code: int, said: str
) -> None:
    ended = vtune(*sft(tiny, lens / "traces.parquet", tmp_path / "run", *change), "--dry-run", "--json")
    assert ended.code == code
    assert said in ended.out + ended.err
    assert bool(said.startswith("warning")) == ("warning" in ended.err)


def test_pictures_of_the_next_update_are_read_while_one_is_computed(
    tiny: Path, lens: Path, policy: Policy
) -> None:
    recipe = load_recipe(
        find("codev-tiny", "recipes.sft"),
        SFTRecipe,
        [f"model={tiny}", f"data=[{lens / 'traces.parquet'}]", "batch_size=2"],
    )
    read: list[bool] = []

    class Noted(PictureReader):
        def _process(self, *given: Any) -> Pixels:
            read.append(threading.current_thread() is threading.main_thread())
            return super()._process(*given)

    eyes = Noted(policy.pictures._processor, policy.pictures.budget)
    stream = training._Stream(
        recipe, replace(policy, pictures=eyes), Ranks(rank=0, world=1, local=0), steps=2
    )
    first = len({data for item in stream.batch(0) for data in item.images})
    assert eventually(lambda: len(read) > first, 60), "nothing is read ahead"
    second = stream.batch(1)
    assert len({data for item in second for data in item.images}) > 1
    # Those of the first update could not be read ahead; of the others, none is left to the update.
    assert read == [True] * first + [False] * (len(read) - first)
    assert not stream._ahead, "nothing is read beyond the end"


def test_an_unused_picture_is_not_read(tiny: Path, lens: Path, policy: Policy, tmp_path: Path) -> None:
    file = tmp_path / "traces.parquet"
    shown = list(read_trajectories(lens / "traces.parquet"))[:2]
    write_trajectories(file, [replace(one, images=(*one.images, Picture(b"no picture"))) for one in shown])
    recipe = load_recipe(
        find("codev-tiny", "recipes.sft"), SFTRecipe, [f"model={tiny}", f"data=[{file}]", "batch_size=2"]
    )
    stream = training._Stream(recipe, policy, Ranks(rank=0, world=1, local=0), steps=1)
    (first, _) = stream.batch(0)
    assert b"no picture" not in first.images


def test_a_run_out_of_gpu_memory_resumes_with_smaller_micro_batches(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    short = setting(epochs="null", steps=4, batch_size=4, checkpoints__every=2)
    assert vtune(*sft(tiny, lens / "traces.parquet", whole, *short)).code == 0
    words = sft(tiny, lens / "traces.parquet", run, *short)
    step, done = Trainer._step, []

    def full(self: Trainer, items: Any) -> Any:
        done.append(items)
        if len(done) == 4:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total …"
            )
        return step(self, items)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", full)
        ended = vtune(*words)
    assert ended.code == 1, ended.err
    assert "ran out of memory in an update: CUDA out of memory. Tried to allocate 2.00 GiB\n" in ended.err
    assert "(update.micro_tokens below 4096, or update.activation_checkpointing: true)" in ended.err
    less = setting(update__micro_tokens=200, update__activation_checkpointing=True)
    ended = vtune(*words, *less, "--resume")
    assert ended.code == 0, ended.err
    assert losses(run) == pytest.approx(losses(whole), rel=1e-4)
