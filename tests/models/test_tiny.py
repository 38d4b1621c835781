import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

from vtune.data import lens
from vtune.models.families.qwen import SPECIAL
from vtune.models.policy import Policy, save_policy
from vtune.models.tiny import TAGS, build_tiny

COORDINATES = re.compile(r"\((\d+),(\d+),(\d+),(\d+)\)")


@pytest.fixture(params=["tiny", "tiny3"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_all_model_files_have_the_same_permissions(tmp_path: Path, each_policy: Policy) -> None:
    build_tiny(tmp_path / "built", ["Which digit?"], seed=0)
    save_policy(each_policy.model, str(tmp_path / "built"), tmp_path / "saved")
    for folder in (tmp_path / "built", tmp_path / "saved"):
        assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_the_tiny_model_has_300_thousand_to_3_million_parameters(each_policy: Policy) -> None:
    count = sum(parameter.numel() for parameter in each_policy.model.parameters())
    assert 300_000 <= count <= 3_000_000


def test_the_stock_classes_load_the_tiny_model(folder: Path) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    processor = AutoImageProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    assert (
        type(model).__name__
        == {
            "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
            "qwen3_vl": "Qwen3VLForConditionalGeneration",
        }[folder.name]
    )
    assert model.config.image_token_id == tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert model.config.vision_config.patch_size == processor.patch_size
    assert model.config.get_text_config().vocab_size >= len(tokenizer)
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="AutoProcessor plays videos by torchvision"
)
def test_the_stock_processor_loads_the_tiny_model(folder: Path) -> None:
    from PIL import Image
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which digit?"}]}
    text = processor.apply_chat_template([turn], add_generation_prompt=True)
    out = processor(text=[text], images=[Image.new("RGB", (112, 112))], return_tensors="pt")
    pads = (out["input_ids"] == processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")).sum()
    assert int(pads) == int(out["image_grid_thw"].prod()) // 4 > 0


def test_the_processor_files_agree_with_each_other(folder: Path) -> None:
    whole = json.loads((folder / "processor_config.json").read_text())
    image = json.loads((folder / "preprocessor_config.json").read_text())
    video = json.loads((folder / "video_preprocessor_config.json").read_text())
    assert (whole["image_processor"], whole["video_processor"]) == (image, video)
    assert (
        image["patch_size"] == json.loads((folder / "config.json").read_text())["vision_config"]["patch_size"]
    )


def test_every_coordinate_in_the_traces_is_one_token(policy: Policy) -> None:
    traces = list(lens.traces(1, 60, seed=1))
    found = {
        number for trace in traces for box in COORDINATES.findall(trace.messages[1].content) for number in box
    }
    assert len(found) > 8
    assert {number: len(policy.chat.words(number)) for number in found} == dict.fromkeys(found, 1)
    code = policy.chat.words("image.crop((28,364,84,420))")
    assert [word for word in map(policy.chat.tokenizer.decode, code) if word.isdigit()] == [
        "28",
        "364",
        "84",
        "420",
    ]


def test_every_tag_and_special_token_is_one_token_and_only_special_ones_are_hidden(policy: Policy) -> None:
    tokenizer = policy.chat.tokenizer
    for word in (*SPECIAL, *TAGS):
        assert len(tokenizer(word)["input_ids"]) == 1
        assert tokenizer.decode(tokenizer(word)["input_ids"], skip_special_tokens=True) == (
            "" if word in SPECIAL else word
        )


def test_any_text_survives_the_tokenizer(policy: Policy) -> None:
    text = "Größe 12345 ≤ 7\n\tpicture.crop((1, 22, 333, 4444)) 👀 <answer>é</answer>"
    assert policy.chat.decode(policy.chat.words(text)) == text


def test_the_seed_determines_the_weights(tmp_path: Path) -> None:
    texts = ["Which digit is on the red sign?"] * 4
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        build_tiny(tmp_path / name, texts, seed=seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


@torch.no_grad()
def test_the_tiny_models_output_depends_on_the_picture(each_policy: Policy) -> None:
    """With transformers' default initialisation the picture changes the logits by less than 0.01."""
    from tests.models.rows import LARGE, picture
    from tests.models.test_batch import batched, logits
    from vtune.models.batch import Row
    from vtune.schema.message import Message

    rows = []
    for data in (LARGE, picture(448, 448, seed=9)):
        pixels = each_policy.pictures.read(data)
        rows.append(Row(each_policy.chat.prompt([Message("user", "<image>Red?")], [pixels]), [pixels]))
    last = logits(each_policy, batched(each_policy, rows))[:, -1]
    assert (last[0] - last[1]).abs().max() > 0.1
