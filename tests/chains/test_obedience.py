"""A policy that does exactly what its prompt asks, and knows the truth, earns full marks.

Across importers, verifiers, places where answers are read, and prompt styles.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.chains.obedient import TAGS, answer, obedient, replied
from tests.chains.table import Record, record_combinations
from tests.data.formats.published import MAKERS, coded, lines, user
from tests.rollout.build import SAMPLE
from tests.verifiers.cases import CASES, sample_of
from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS
from vtune.reward.format import counted_tags, format_reward
from vtune.rollout.prompts import Style, ask
from vtune.runs.data.importing import import_data
from vtune.runs.recipes.chain.joins import prompt_join
from vtune.runs.recipes.chain.policies import accuracy, asked
from vtune.schema.message import IMAGE, Message
from vtune.schema.parquet import load_picture, read_samples
from vtune.schema.pixels import examine
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS, scored_elsewhere
from vtune.verifiers.answer_instruction import missing_marks
from vtune.verifiers.detection import with_iou
from vtune.verifiers.spaces import answers_in_shown_pixels, with_shown_size
from vtune.verifiers.verifier import ANSWER_IN

STYLES: tuple[Style, ...] = ("codev", "tools", "pool")
SIZE, SHOWN = (100, 100), (56, 84)
TIGHTEST = 0.99
WORDINGS = ("Which one?", "Which one? Put your answer in \\boxed{}.", "Which one? Write <answer>…</answer>.")
SPACES: dict[str, list[dict[str, Any]]] = {
    "points and boxes": [
        {"space": "pixels", "width": 100, "height": 100},
        {"space": "pixels", "width": 100, "height": 100, "reply_space": "relative_1000"},
        {"space": "pixels", "width": 100, "height": 100, "reply_space": "shown_pixels"},
        {"space": "relative_1000"},
        {"space": "relative_1000", "reply_space": "pixels", "width": 100, "height": 100},
        {"det_verifier_normalized": True, "reply_space": "shown_pixels", "width": 100, "height": 100},
    ],
    "words and numbers": [{}],
}


def earned(sample: Sample, reply: str, shown: tuple[int, int]) -> float:
    """The score of a sample's verifier at the tightest IoU threshold."""
    verifier = VERIFIERS[sample.verifier]
    judged = with_shown_size(sample, shown) if answers_in_shown_pixels(sample) else sample
    return verifier.verify(reply, with_iou(judged, (TIGHTEST,)) if verifier.reads_iou else judged).score


def check(sample: Sample, style: Style, size: tuple[int, int], shown: tuple[int, int]) -> None:
    """Check that obedience to a style earns accuracy and format in full."""
    names = [f"image_{number}.png" for number in range(len(sample.images))]
    turns = ask(style, sample, names, [size] * len(names), draw=7)
    prompt = "\n".join(turn.content for turn in turns)
    reply = obedient(prompt, sample, shown)
    assert earned(sample, reply, shown) == pytest.approx(1.0), f"{prompt}\n---\n{reply}"
    if style == "pool":  # recipes with the prompt pool count tags if format is rewarded
        assert sample.format_ratio == 0 or counted_tags(reply).score == 1.0, f"{prompt}\n---\n{reply}"
    else:
        assert format_reward([*turns, Message("assistant", reply)]).score == 1.0, f"{prompt}\n---\n{reply}"


def synthetic(name: str) -> Iterator[Sample]:
    """Samples of a verifier: every answer place, wording and space, with and without a format reward."""
    kind = "points and boxes" if VERIFIERS[name].self_contained else "words and numbers"
    for place, wording, ratio, space in product(ANSWER_IN, WORDINGS, (0.0, 0.1), SPACES[kind]):
        if place == "reply" and "boxed" in wording:
            continue  # the question would contradict the sample
        yield replace(
            sample_of(name),
            prompt=(Message("user", f"{IMAGE}{wording}", (0,)),),
            images=SAMPLE.images,
            format_ratio=ratio,
            verifier_parm={"answer_in": place} | space,
        )


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", sorted(CASES))
def test_obedience_earns_full_marks_with_every_verifier(
    name: str, style: Style, record_property: Record
) -> None:
    samples = list(synthetic(name))
    assert len(samples) in (16, 96)
    record_combinations(record_property, {"verifier, place, wording, space": len(samples)})
    for sample in samples:
        check(sample, style, SIZE, SHOWN)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Importer -> the file that it made from a published one."""
    found = {}
    for name in sorted(name for name, layout in FORMATS.items() if layout.makes == "samples"):
        published = MAKERS[name](tmp_path_factory.mktemp(name))
        found[name] = tmp_path_factory.mktemp("out") / f"{name}.parquet"
        import_data(name, published.paths, found[name], options=published.options, strict=False)
    return found


IMPORTERS = sorted(name for name, layout in FORMATS.items() if layout.makes == "samples")


def judged(file: Path) -> list[Sample]:
    """The samples of a file that are scored here; others always need an official scorer."""
    samples = list(read_samples(file))
    assert samples
    return [sample for sample in samples if not scored_elsewhere(sample)]


def picture_size(sample: Sample, file: Path) -> tuple[int, int]:
    return examine(load_picture(sample.images[0], file.parent)).size if sample.images else SIZE


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", IMPORTERS)
def test_obedience_earns_full_marks_with_every_importer(
    name: str, style: Style, imported: dict[str, Path]
) -> None:
    for sample in judged(imported[name]):
        check(sample, style, picture_size(sample, imported[name]), SHOWN)


@pytest.mark.parametrize("name", IMPORTERS)
def test_what_a_cold_start_teaches_earns_full_marks_with_plain_prompts(
    name: str, imported: dict[str, Path]
) -> None:
    """`plain` is for policies trained on traces with tags; the answer is boxed if the sample reads a box."""
    for sample in judged(imported[name]):
        prompt = "\n".join(turn.content for turn in ask("plain", sample, [], [], draw=0))
        boxed = TAGS if sample.verifier_parm.get("answer_in") == "boxed" else TAGS[:2]
        reply = replied(answer(prompt, sample, SHOWN), [*boxed])
        assert earned(sample, reply, SHOWN) == pytest.approx(1.0), f"{prompt}\n---\n{reply}"
        assert format_reward([Message("assistant", reply)]).score == 1.0


@pytest.mark.parametrize("name", [name for name in IMPORTERS if FORMATS[name].own_questions])
def test_our_questions_are_complete_in_the_file(name: str, imported: dict[str, Path]) -> None:
    for sample in read_samples(imported[name]):
        assert missing_marks(sample) == ()
        assert VERIFIERS[sample.verifier].form(sample) in sample.question


def test_photographs_become_questions_that_say_how_to_answer(coco_mini: Path, tmp_path: Path) -> None:
    """Regression: of 158 rows made of 22 photographs, 82 asked for boxes without naming `<answer>`."""
    from vtune.data.formats.building import Options

    out = tmp_path / "coco.parquet"
    options = Options(images=coco_mini / "images")
    import_data("coco", [coco_mini / "instances.json"], out, options=options, strict=True)
    samples = list(read_samples(out))
    assert len(samples) > 100
    for sample in samples:
        prompt = sample.prompt[-1].content
        assert earned(sample, obedient(prompt, sample), SHOWN) == pytest.approx(1.0)
        assert counted_tags(obedient(prompt, sample)).score == 1.0
    assert json.dumps([sample.verifier for sample in samples]).count("counting") > 10


GEO3K = (
    "<image>Find x. You FIRST think about the reasoning process as an internal monologue and then provide "
    "the final answer. The reasoning process MUST BE enclosed within <think> </think> tags. The final answer "
    "MUST BE put in \\boxed{}."
)
"""verl's examples/data_preprocess/geo3k.py; word for word after the question."""


@pytest.mark.parametrize(
    ("text", "tools", "parm"),
    [
        pytest.param(GEO3K, None, {"answer_in": "boxed"}, id="as published"),
        pytest.param(GEO3K, (), {}, id="for our prompts"),
        pytest.param("<image>Find x.", None, {}, id="nothing is asked"),
        pytest.param("<image>Find x. <answer>\\boxed{}</answer>", None, {}, id="a box within tags"),
    ],
)
def test_verl_answers_are_read_where_the_prompt_asks_for_them(
    text: str, tools: Any, parm: dict[str, str], tmp_path: Path
) -> None:
    row = {
        "data_source": "geo",
        "prompt": user(text),
        "images": [coded(0)],
        "reward_model": {"style": "rule", "ground_truth": "5"},
    }
    file = lines(tmp_path / "geo.jsonl", [row])
    import_data("verl", [file], tmp_path / "geo.parquet", options=Options(tools=tools), strict=True)
    (sample,) = read_samples(tmp_path / "geo.parquet")
    assert (sample.verifier, sample.verifier_parm) == ("math", parm)
    for style in ("plain", "tools", "codev") if parm else ():
        assert {accuracy(one).score for one in asked(sample, style, ())} == {1.0}
    if not parm:
        assert {accuracy(one).score for one in asked(sample, "codev", ())} == {1.0}


def test_a_question_that_asks_for_an_unread_box_gets_advice_to_import_again() -> None:
    sample = replace(SAMPLE, prompt=(Message("user", GEO3K.removeprefix(IMAGE)),), images=())
    join = prompt_join("w", "r", "plain", asked(sample, "plain", ()))
    assert join.level == "break"
    assert "`answer_in: boxed`" in join.fix
    assert "--tools" in join.fix
    assert "any rollout.prompt" not in join.fix
    silent = replace(sample, prompt=(Message("user", "Find x."),))
    assert "any rollout.prompt" in prompt_join("w", "r", "plain", asked(silent, "plain", ())).fix
