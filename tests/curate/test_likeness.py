import io
import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from tests.curate.build import item, png
from vtune.curate.duplicates import (
    Benchmarks,
    Contamination,
    Duplicates,
    benchmark_key,
    duplicate_key,
    repeated,
)
from vtune.curate.filters import Like
from vtune.curate.item import Item
from vtune.curate.likeness import BITS, Index, Key, PictureKey, key_of, look_of, normalised, similarity
from vtune.errors import DataError


def photo(seed: int, side: int = 160) -> Image.Image:
    """A smooth picture, like a photograph."""
    noise = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    return Image.fromarray(noise).resize((side, side), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def both(**changes: object) -> Duplicates:
    values = {
        "filter": "duplicates",
        "rows": "all",
        "match": "both",
        "image_distance": 8,
        "text_similarity": 1.0,
    }
    return Duplicates(**(values | changes))  # type: ignore[arg-type]


def apart(**changes: object) -> Contamination:
    values: dict[str, object] = {
        "filter": "contamination",
        "rows": "all",
        "suites": [],
        "data": ["x"],
        "image_distance": 8,
        "text_similarity": None,
    }
    return Contamination(**(values | changes))  # type: ignore[arg-type]


def dropped(spec: Duplicates, rows: list[Item]) -> dict[int, Like]:
    return dict(repeated(spec, [(row.source, duplicate_key(spec, row)) for row in rows], random.Random(0)))


def test_re_encoded_and_resized_pictures_stay_near_and_others_do_not() -> None:
    looks = [look_of(encoded(photo(seed))) for seed in range(12)]
    for seed, look in enumerate(looks):
        for other in (encoded(photo(seed), "JPEG"), encoded(photo(seed).resize((97, 97)))):
            assert (look ^ look_of(other)).bit_count() <= 8
    pairs = [(a ^ b).bit_count() for n, a in enumerate(looks) for b in looks[:n]]
    assert min(pairs) > 40


def diagram(seed: int) -> Image.Image:
    """Black lines on a transparent background, like exported figures."""
    rng = random.Random(seed)
    image = Image.new("RGBA", (500, 400), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    for _ in range(5):
        ends = [(rng.randrange(500), rng.randrange(400)) for _ in range(2)]
        draw.line(ends, fill=(0, 0, 0, 255), width=6)
    return image


def test_transparent_parts_of_a_picture_count_as_white() -> None:
    for seed in range(4):
        flat = Image.new("RGBA", (500, 400), "white")
        flat.alpha_composite(diagram(seed))
        look = look_of(encoded(diagram(seed)))
        assert look == look_of(encoded(flat.convert("RGB"))) != 0
    rows = [item("Find x.", pictures=(encoded(diagram(seed)),)) for seed in range(4)]
    assert dropped(both(), rows) == {}


def test_plain_pictures_are_the_same_only_if_their_files_are() -> None:
    files = [encoded(Image.new("RGB", (60, 60), colour)) for colour in ("red", "navy", "red")]
    assert {look_of(file) for file in files} == {0}
    rows = [item("What colour?", pictures=(file,)) for file in files]
    assert set(dropped(both(), rows)) == {2}
    keys = [benchmark_key(apart(), row) for row in rows]
    assert set(Benchmarks(apart(), [keys[1]]).contaminated(keys)) == {1}


def test_the_same_picture_with_another_question_is_not_a_duplicate() -> None:
    picture = (encoded(photo(0)),)
    rows = [item("How many dogs?", pictures=picture), item("How many cats?", pictures=picture)]
    assert dropped(both(), rows) == {}
    assert set(dropped(both(match="images"), rows)) == {1}


def test_the_first_of_several_is_kept_and_named_in_the_reason() -> None:
    rows = [
        item("How many dogs?", source="a", pictures=(encoded(photo(0)),)),
        item("How many dogs?", source="b", pictures=(encoded(photo(1)),)),
        item("how many  DOGS", source="b", pictures=(encoded(photo(0), "JPEG"),)),
    ]
    found = dropped(both(), rows)
    assert set(found) == {2}
    assert found[2].row == 0
    assert (
        found[2].named("a/7", "a.parquet, row 7").endswith("and the same question as a/7 (a.parquet, row 7)")
    )
    assert dropped(both(image_distance=None), rows) == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2 + 3 = ?", "2 - 3 = ?"),
        ("Is 3 < 4?", "Is 3 > 4?"),
        ("What is |-3|?", "What is |3|?"),
        ("What is 1/5?", "What is 1.5?"),
        ("Who wrote C++?", "Who wrote C#?"),
        ("कि", "की"),
        ("What is f(-x)?", "What is f(x)?"),
        ("What is -.5 doubled?", "What is .5 doubled?"),
        ("What is -\u221a2?", "What is \u221a2?"),
        ("What is 5!?", "What is 5?"),
        ("What is 2.5?", "What is 2:5?"),
        ("What are \u20ac5?", "What are \u00a35?"),
        ("What is 2*3?", "What is 23?"),
    ],
)
def test_mathematical_signs_distinguish_questions(one: str, other: str) -> None:
    assert dropped(both(), [item(one, pictures=()), item(other, pictures=())]) == {}
    keys = [benchmark_key(apart(), item(text, pictures=())) for text in (one, other)]
    assert Benchmarks(apart(), keys[:1]).contaminated(keys[1:]) == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What's 2+3?", "what s  2 + 3"),
        ("(A) a well-known **dog**", "A. a well known dog"),
        ("5 \u2212 3", "5 -3"),
        ("Größe?", "Gro\u0308ße"),
        (r"Find \(x\) if \(x+1=2\)", "Find $x$ if $x+1=2$"),
        (r"What is 5\% of 20?", "What is 5% of 20?"),
        ("# Question\nthe *red* dog", "Question: the red dog"),
        ("Which?\n- 3\n- 4", "Which?\n3\n4"),
        ("\u25cf one", "one"),
        ("COVID-19", "covid 19"),
    ],
)
def test_case_punctuation_spaces_and_encoding_do_not_distinguish_questions(one: str, other: str) -> None:
    assert set(dropped(both(), [item(one, pictures=()), item(other, pictures=())])) == {1}


def test_near_pictures_with_another_answer_are_no_duplicates() -> None:
    near = [(encoded(photo(0), kind),) for kind in ("PNG", "JPEG")]
    first, other = item("Which digit?", "7", pictures=near[0]), item("Which digit?", "8", pictures=near[1])
    assert dropped(both(), [first, other]) == {}
    assert set(dropped(both(), [first, item("Which digit?", " 7", pictures=near[1])])) == {1}
    assert set(dropped(both(match="images"), [first, other])) == {1}
    # If the picture is identical, one answer must be wrong; and boxes in pixels change with a copy's size.
    assert set(dropped(both(), [first, item("Which digit?", "8", pictures=near[0])])) == {1}
    boxes = [
        item(
            "Where?",
            f'[{{"label": "a", "bbox_2d": [0, 0, {side}, {side}]}}]',
            verifier="grounding",
            pictures=data,
        )
        for side, data in zip((80, 40), near, strict=True)
    ]
    assert set(dropped(both(), boxes)) == {1}


def test_near_questions_are_found_if_requested() -> None:
    question = (
        "In the figure, the two lines AB and CD are parallel, and the angle at E is 40 degrees. Find F."
    )
    rows = [
        item(question),
        item(question.replace("Find", "Compute")),
        item("What is the area of the circle?"),
    ]
    assert set(dropped(both(match="text", text_similarity=0.8), rows)) == {1}
    assert dropped(both(match="text"), rows) == {}


def test_rows_without_pictures_are_compared_by_question_only() -> None:
    rows = [item("What is x?"), item("What is x?"), item("What is x?", pictures=(png((9, 9)),))]
    assert set(dropped(both(), rows)) == {1}


looks = st.integers(0, 2**BITS - 1)


@given(looks, st.sets(st.integers(0, BITS - 1), max_size=8), st.integers(8, 20))
def test_the_index_misses_no_picture_within_the_distance(look: int, flips: set[int], most: int) -> None:
    other = look
    for bit in flips:
        other ^= 1 << bit
    assume(look and other)  # a hash of 0 carries no information
    index = Index(image_distance=most, texts=False)
    index.add(0, Key((PictureKey(b"a", look),), b"", b""), by="pictures")
    assert index.candidates(Key((PictureKey(b"b", other),), b"", b""), by="pictures") == [0]


@settings(max_examples=40)
@given(st.text(max_size=30), st.text(max_size=30))
def test_similarity_is_symmetric_and_1_for_the_same_words(a: str, b: str) -> None:
    first, second = (key_of(item(text), looks=False, texts=True) for text in (a, b))
    assert similarity(first, second) == similarity(second, first)
    assert 0 <= similarity(first, second) <= 1
    assert (similarity(first, second) == 1) >= (normalised(a) == normalised(b))


def test_similarity_estimates_the_share_of_common_runs() -> None:
    words = [f"{n:05d}" for n in range(400)]
    a, b = " ".join(words[:300]), " ".join(words[100:])
    runs = [{text[i : i + 5] for i in range(len(text) - 4)} for text in (a, b)]
    exact = len(runs[0] & runs[1]) / len(runs[0] | runs[1])
    found = similarity(*(key_of(item(text), looks=False, texts=True) for text in (a, b)))
    assert found == pytest.approx(exact, abs=0.15)


def test_a_re_encoded_picture_of_a_benchmark_is_found() -> None:
    spec = apart()
    theirs = [benchmark_key(spec, item("Which?", pictures=(encoded(photo(seed)),))) for seed in (3, 0)]
    rows = [
        item("Another question", pictures=(encoded(photo(0), "JPEG"),)),
        item("Which?", pictures=(encoded(photo(1)),)),
        item("Two pictures", pictures=(encoded(photo(2)), encoded(photo(0)))),
    ]
    keys = [benchmark_key(spec, row) for row in rows]
    found = Benchmarks(spec, theirs).contaminated(keys)
    assert set(found) == {0, 2}
    assert found[0].named("held/1", "bench").endswith("bits differ) of held/1 (bench)")
    assert {like.row for like in found.values()} == {1}


def test_without_a_distance_only_equal_files_match() -> None:
    spec = apart(image_distance=None)
    theirs = [benchmark_key(spec, item(pictures=(encoded(photo(0)),)))]
    rows = [item(pictures=(encoded(photo(0), "JPEG"),)), item(pictures=(encoded(photo(0)),))]
    keys = [benchmark_key(spec, row) for row in rows]
    assert set(Benchmarks(spec, theirs).contaminated(keys)) == {1}


def test_questions_alone_match_without_pictures_or_with_a_similarity() -> None:
    rows = [item("What is the capital?"), item("What is the capital?", pictures=(encoded(photo(0)),))]
    for spec, found in ((apart(), {0}), (apart(text_similarity=0.9), {0, 1})):
        theirs = [benchmark_key(spec, item("what is the capital"))]
        keys = [benchmark_key(spec, row) for row in rows]
        assert set(Benchmarks(spec, theirs).contaminated(keys)) == found


def test_a_file_that_is_not_a_picture_is_our_error() -> None:
    with pytest.raises(DataError, match="cannot be decoded"):
        look_of(b"no picture")


def test_different_worlds_with_the_same_question_are_not_duplicates() -> None:
    worlds = [
        item("Go.", truth, environment=environment, extra={"steps": steps})
        for truth, environment, steps in (
            *(("S.G", "maze", 1), ("SG", "maze", 1), ("S.G", "maze", 2), ("S.G", "other", 1)),
            *(("S.G", "maze", 1), ("S.G", "", 1), ("SG", "", 1), ("SG", "tools", 2)),
        )
    ]
    spec = Duplicates(filter="duplicates")
    entries = [("s", duplicate_key(spec, one)) for one in worlds]
    assert set(repeated(spec, entries, random.Random(0))) == {4, 6, 7}
