import base64
import datetime
import io
import string
import time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.data.formats.published import jpeg
from vtune.data.formats.building import Options, judged
from vtune.data.formats.judging import guess_verifier
from vtune.data.formats.values import conversation, listed_options, pictures, plain, text_of
from vtune.errors import DataError
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS

CODED = base64.b64encode(jpeg(0)).decode()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(jpeg(0), id="bytes"),
        pytest.param({"bytes": jpeg(0), "path": None}, id="struct with bytes"),
        pytest.param({"bytes": None, "path": "a.jpg"}, id="struct with a path"),
        pytest.param("a.jpg", id="path"),
        pytest.param(CODED, id="base64"),
        pytest.param(f"{CODED[:76]}\n{CODED[76:]}", id="base64 in lines"),
        pytest.param(f"data:image/jpeg;base64,{CODED}", id="data URI"),
        pytest.param([jpeg(0)], id="list"),
    ],
)
def test_a_picture_is_read_from_every_form(value: object, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(0))
    (picture,) = pictures("images", value, tmp_path)
    assert picture.data == jpeg(0)


@pytest.mark.parametrize("start", ["file://", "file:", "file://localhost"])
def test_a_picture_may_be_a_file_uri(start: str, tmp_path: Path) -> None:
    (tmp_path / "a b.jpg").write_bytes(jpeg(0))
    (picture,) = pictures("images", f"{start}{tmp_path}/a%20b.jpg", tmp_path)
    assert (picture.data, picture.path) == (jpeg(0), f"{tmp_path}/a b.jpg")
    named = {"bytes": None, "path": f"{start}{tmp_path}/a%20b.jpg"}
    assert pictures("images", [named], tmp_path) == (picture,)
    with pytest.raises(DataError, match="leaves the folder"):
        pictures("images", f"{start}/etc/passwd", tmp_path)


def test_an_unsupported_picture_gets_advice_to_convert_it(tmp_path: Path) -> None:
    tiff = io.BytesIO()
    Image.new("RGB", (8, 8)).save(tiff, "TIFF")
    with pytest.raises(DataError, match="cannot be opened") as caught:
        pictures("image", tiff.getvalue(), tmp_path)
    assert "store a PNG or JPEG" in caught.value.fix


def test_a_table_cell_may_hold_a_list_of_pictures_as_text(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg", "[c].jpg"):
        (tmp_path / name).write_bytes(jpeg(0))
    assert [one.path for one in pictures("images", '["a.jpg", "b.jpg"]', tmp_path)] == ["a.jpg", "b.jpg"]
    assert [one.path for one in pictures("images", "[c].jpg", tmp_path)] == ["[c].jpg"]
    assert pictures("images", "[]", tmp_path) == ()


def test_a_picture_may_be_given_as_for_verls_loader(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(0))
    coded = f"data:image/jpeg;base64,{base64.b64encode(jpeg(0)).decode()}"
    for name in ("a.jpg", (tmp_path / "a.jpg").as_uri(), coded, jpeg(0)):
        (picture,) = pictures("images", [{"image": name}], tmp_path)
        assert picture.data == jpeg(0)
    with pytest.raises(DataError, match=r"no picture at .*gone\.jpg"):
        pictures("images", [{"image": "gone.jpg"}], tmp_path)


@pytest.mark.parametrize("name", ["oven_00000006", "v1.2_01"])
@pytest.mark.parametrize("ending", [".jpg", ".JPG", ".JPEG", ".png"])
def test_a_picture_may_be_named_by_id_only(name: str, ending: str, tmp_path: Path) -> None:
    """Like InfoSeek's `image_id`."""
    (tmp_path / f"{name}{ending}").write_bytes(jpeg(0))
    (picture,) = pictures("images", name, tmp_path)
    assert picture.data == jpeg(0)


def test_an_id_shared_by_two_pictures_is_an_error_that_names_both(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(jpeg(0))
    (tmp_path / "a.JPG").hardlink_to(tmp_path / "a.png")
    assert len(pictures("images", "a", tmp_path)) == 1
    (tmp_path / "a.jpg").write_bytes(jpeg(1))
    with pytest.raises(DataError, match=r"a may be a\.jpg or a\.JPG or a\.png") as caught:
        pictures("images", "a", tmp_path)
    assert "add the ending" in caught.value.fix


def test_base64_with_long_stretches_between_slashes_is_not_a_file_name(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("RGB", (400, 400), "red").save(out, "PNG")
    coded = base64.b64encode(out.getvalue()).decode()
    assert max(map(len, coded.split("/"))) > 255
    assert len(coded) < 4096
    (picture,) = pictures("images", coded, tmp_path)
    assert picture.data == out.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP"])
def test_tiny_pictures_in_base64_are_not_file_names(kind: str, tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("1" if kind != "WEBP" else "RGB", (1, 1)).save(out, kind)
    coded = base64.b64encode(out.getvalue()).decode()
    assert len(coded) < 255
    (picture,) = pictures("images", coded, tmp_path)
    assert picture.data == out.getvalue()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("gone.jpg", "no picture at"),
        ("https://example.com/a.jpg", "is a URL"),
        ({"image": "http://example.com/a"}, "is a URL"),
        (b"no picture", "cannot be opened"),
        ({"bytes": None, "path": None}, "neither bytes nor a path"),
        ({"bytes": b"", "path": "gone.png"}, "its bytes are empty, and there is no picture at"),
        ("pics", "/pics: it is a folder"),
        ("pics/", "/pics: it is a folder"),
        ("img0", "no picture at {folder}/img0: No such file or directory"),
        ("0054c91397f2fe05", "no picture at {folder}/0054c91397f2fe05"),
        ("data:image/png;base64,img0", "cannot be opened (3 bytes)"),
        ("", "cannot be opened (0 bytes)"),
        (7, "a picture: bytes, a path or base64"),
    ],
)
def test_an_invalid_picture_is_reported(value: object, why: str, tmp_path: Path) -> None:
    (tmp_path / "pics").mkdir()
    with pytest.raises(DataError) as caught:
        pictures("images", value, tmp_path)
    assert why.format(folder=tmp_path) in str(caught.value)
    assert "`images`" in caught.value.where
    assert caught.value.fix


def test_turns_are_read_from_text_json_and_parts() -> None:
    turns = [{"role": "user", "content": "<image>\nWhy?"}]
    assert conversation("<image>\nWhy?", 1) == turns
    assert conversation("Why?", 1) == turns
    assert conversation('[{"role": "user", "content": "<image>\\nWhy?"}]', 1) == turns
    parts = [{"type": "image", "image": "a.jpg"}, {"type": "text", "text": "\nWhy?"}]
    assert conversation([{"role": "user", "content": parts}], 1) == turns
    assert conversation("[1, 2] is what?", 0) == [{"role": "user", "content": "[1, 2] is what?"}]


def test_an_image_mark_goes_into_the_user_turn_not_the_system_turn() -> None:
    turns = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}]
    assert [turn["content"] for turn in conversation(turns, 2)] == ["Be short.", "<image>\n<image>\nWhy?"]


words = st.text(string.ascii_lowercase, min_size=1)


@given(st.lists(words, min_size=2, max_size=26), st.sampled_from(["({}) {}", "{}. {}", "{}) {}", "{}: {}"]))
def test_listed_options_are_found_in_each_style(options: list[str], style: str) -> None:
    letters = zip(string.ascii_uppercase, options, strict=False)
    text = "Which one?\n" + "\n".join(style.format(*pair) for pair in letters)
    assert listed_options(text) == tuple(options)


@pytest.mark.parametrize("text", ["A. one\nC. three", "A. alone", "Which? A. one B. two", ""])
def test_text_without_a_list_of_options_gives_none(text: str) -> None:
    assert listed_options(text) == ()


@pytest.mark.parametrize(
    ("truth", "choices", "model", "verifier"),
    [
        ("B", (), False, "choice"),
        ("(B)", (), True, "choice"),
        ("blue", ("red", "Blue"), True, "choice"),
        ("B. blue", ("red", "blue"), False, "choice"),
        ("b", ("red", "blue"), False, "choice"),
        ("(b)", ("red", "blue"), True, "choice"),
        ("c", ("red", "blue"), False, "exact"),
        ("b", (), False, "exact"),
        ("3.5", (), True, "math"),
        ("\\frac{1}{2}", (), False, "math"),
        ("2 \\sqrt { 221 }", (), False, "math"),
        ("1999 or so", (), False, "exact"),
        ("The glove is blue.", (), True, "judge"),
        ("red", ("red", "red"), False, "exact"),
        ("-3,000", (), False, "math"),
        ("3/4", (), False, "math"),
        ("1.5:1", (), False, "math"),
        ("7-3x", (), False, "math"),
        ("10^{-3}", (), False, "math"),
        ("2024-01-02", (), False, "exact"),
        ("01/02/2024", (), False, "exact"),
        ("1990–1995", (), False, "exact"),
        ("$5 - $10", (), True, "judge"),
        ("5-10%", (), False, "exact"),
        ("3-2", (), False, "exact"),
        ("1:20", (), False, "exact"),
        ("10.0.0.1", (), False, "exact"),
        ("1 2 3", (), False, "exact"),
        ("10 000", (), False, "math"),
        ("10 00", (), False, "exact"),
        ("> 50", (), False, "exact"),
        ("100+", (), False, "exact"),
        ("#4", (), False, "exact"),
        ("20 °C", (), False, "exact"),
        ("３", (), False, "exact"),
        ("-20 °C", (), False, "exact"),
        ("> -5", (), False, "exact"),
        ("-10–10", (), False, "exact"),
        ("10-20 m", (), False, "exact"),
        ("2024-01-02 10:00", (), False, "exact"),
        ("9:00-17:00", (), False, "exact"),
        ("3:00 p.m.", (), False, "exact"),
        ("7 a.m.", (), False, "exact"),
        ("1990/91", (), False, "exact"),
        ("v1.2.3", (), False, "exact"),
        ("2024年1月2日", (), False, "exact"),
        ("2:1", (), False, "math"),
        ("1024/81", (), False, "math"),
        ("1 - 1 = x", (), False, "math"),
    ],
)
def test_the_verifier_is_chosen_by_the_ground_truth(
    truth: str, choices: tuple[str, ...], model: bool, verifier: str
) -> None:
    assert guess_verifier(truth, choices, model=model) == verifier


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        ("2024-01-02", "2024-02-01"),
        ("3-2", "2-1"),
        ("1990-1995", "1985-1990"),
        ("1:20", "2:40"),
        ("10.0.0.1", "10.0.0.9"),
        ("1 2 3", "6"),
    ],
)
def test_digits_that_are_not_a_value_do_not_use_math(truth: str, wrong: str) -> None:
    found = judged("When?", truth, Options(), column="answer")
    sample = Sample(
        id="a", source="a", prompt=(Message("user", "When?"),), ground_truth=truth, verifier=found["verifier"]
    )
    scores = [
        VERIFIERS[sample.verifier].verify(f"<answer>{text}</answer>", sample).score for text in (truth, wrong)
    ]
    assert scores == [1.0, 0.0]


@pytest.mark.parametrize("part", ["1 - ", "1 ", "1:11", "1.1.", "1,", "1%-", "$1 -"])
def test_a_long_chain_of_numbers_is_read_quickly(part: str) -> None:
    began = time.process_time()
    guess_verifier(part * 300 + "x")
    assert time.process_time() - began < 2


def test_numbers_are_written_as_people_write_them() -> None:
    assert [text_of("answer", value) for value in (4, 4.0, 4.5, "4")] == ["4", "4", "4.5", "4"]
    for value in (None, True, float("nan"), ["4"]):
        with pytest.raises(DataError):
            text_of("answer", value)


def test_extra_values_become_json_values() -> None:
    value = {
        "when": datetime.date(2024, 2, 1),
        "cost": Decimal("1.5"),
        "nan": float("nan"),
        "own": {"bytes": b"picture"},
        "other": b"x",
    }
    assert plain(value, [Picture(data=b"picture")]) == {
        "when": "2024-02-01",
        "cost": "1.5",
        "nan": None,
        "own": {"bytes": {"image": 0}},
        "other": {"base64": "eA=="},
    }


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("SVG", b'<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="http://www.w3.org/2000/svg"/>'),
        ("HEIC", b"\0\0\0\x18ftypheic\0\0\0\0"),
        ("TIFF", b"MM\0*\0\0\0\x08"),
    ],
)
def test_an_unsupported_picture_kind_is_reported_with_the_supported_ones(
    kind: str, content: bytes, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=f"it is {kind}, and PNG, JPEG, WEBP, BMP and GIF are read"):
        pictures("image", content, tmp_path)
    with pytest.raises(DataError, match="it is not a picture"):
        pictures("image", b"<!DOCTYPE html><svg/>", tmp_path)
