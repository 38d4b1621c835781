import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, ViTConfig, ViTModel

from tests.models.rows import picture
from tests.tools.encoders import build_encoder
from vtune.errors import DataError, RecipeError
from vtune.models.picture_encoder import PictureModel
from vtune.runs.data.indexing import index_pictures
from vtune.tools.passages import IndexEncoder
from vtune.tools.picture_index import Entry, PictureIndex, build_picture_index, check_pictures
from vtune.tools.pictures import decoded, layout, perceptual_hash


def scene(seed: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    """Coloured areas with edges, like a photograph; noise would look the same everywhere."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "PNG", **options: int) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


SCENES = [scene(seed) for seed in range(20)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> PictureIndex:
    folder = tmp_path_factory.mktemp("pictures")
    entries = [Entry(encoded(image), f"scene {n}", f"text {n}", f"row {n}") for n, image in enumerate(SCENES)]
    assert build_picture_index(entries, folder, lambda: None)["pictures"] == 20
    return PictureIndex(folder, min_score=0.75)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda image: encoded(image), id="as it is"),
        pytest.param(lambda image: encoded(image, "JPEG", quality=40), id="as JPEG"),
        pytest.param(lambda image: encoded(image.resize((70, 50))), id="small"),
        pytest.param(lambda image: encoded(image.resize((320, 240))), id="large"),
        pytest.param(lambda image: encoded(image.crop((3, 3, 157, 117))), id="without its border"),
    ],
)
def test_a_picture_is_found_whatever_its_encoding(index: PictureIndex, change) -> None:  # type: ignore[no-untyped-def]
    for number, image in enumerate(SCENES):
        first = index.find(change(image), 1)[0]
        assert (first.title, first.text) == (f"scene {number}", f"text {number}")
        assert first.thumbnail is not None
        assert max(decoded(first.thumbnail).size) <= 256


def test_unrelated_pictures_are_not_found(index: PictureIndex) -> None:
    assert [index.find(encoded(scene(seed)), 3) for seed in range(100, 110)] == [[]] * 10


def build_clip(folder: Path, *, seed: int, side: int = 32) -> Path:
    """A CLIP with random weights and a processor that leaves pixels unchanged."""
    torch.manual_seed(seed)
    part = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPConfig(
        text_config={**part, "vocab_size": 8, "max_position_embeddings": 8},
        vision_config={**part, "image_size": side, "patch_size": 8},
        projection_dim=12,
    )
    CLIPModel(config).save_pretrained(folder)
    size = {"height": side, "width": side}
    CLIPImageProcessor(size=size, crop_size=size).save_pretrained(folder)
    return folder


def test_a_model_embeds_the_pictures_and_another_model_is_an_error(tmp_path: Path) -> None:
    model, other = build_clip(tmp_path / "clip", seed=0), build_clip(tmp_path / "other", seed=1)
    photos, out = tmp_path / "photos", tmp_path / "index"
    photos.mkdir()
    for number, image in enumerate(SCENES):
        (photos / f"{number}.png").write_bytes(encoded(image))
    facts = index_pictures(photos, out, encoder=str(model))
    assert (facts["pictures"], facts["width"], facts["encoder"]["model"]) == (20, 12, str(model))
    assert not (out / "hashes.npy").exists()
    index = PictureIndex(out, min_score=0.5)
    for number, image in enumerate(SCENES):
        first, second = index.find(encoded(image), 2)
        assert first.title == str(number)
        assert first.score == pytest.approx(1, abs=2e-3)
        assert first.score >= second.score
    # A score is the cosine similarity of the model's vectors.
    vectors = PictureModel(str(model), device=torch.device("cpu"))
    one, two = (vectors.picture(image) for image in SCENES[:2])
    found = PictureIndex(out, min_score=-1).find(encoded(SCENES[0]), 20)
    assert {match.title: match.score for match in found}["1"] == pytest.approx(float(one @ two), abs=2e-3)

    with pytest.raises(DataError, match="is another model"):
        PictureIndex(out, encoder=IndexEncoder(model=str(other)))
    with pytest.raises(DataError, match="is another model"):
        check_pictures(out, IndexEncoder(model=str(other)))
    moved = model.rename(tmp_path / "moved")
    with pytest.raises(DataError):
        check_pictures(out, None)
    again = PictureIndex(out, encoder=IndexEncoder(model=str(moved)))
    assert again.find(encoded(SCENES[3]), 1)[0].title == "3"


def test_every_picture_finds_itself_first_and_scores_1(tmp_path: Path) -> None:
    model = build_clip(tmp_path / "clip", seed=0)
    photos = tmp_path / "photos"
    photos.mkdir()
    base = np.asarray(SCENES[0].resize((32, 32))).astype(np.int16)
    for number in range(40):  # closer to each other than the length errors of half precision
        noise = np.random.default_rng(number).integers(-6, 7, base.shape)
        Image.fromarray((base + noise).clip(0, 255).astype(np.uint8)).save(photos / f"{number}.png")
    index_pictures(photos, tmp_path / "index", encoder=str(model))
    index = PictureIndex(tmp_path / "index", min_score=1)
    found = {path.stem: index.find(path.read_bytes(), 1) for path in photos.iterdir()}
    assert {name: [(one.title, one.score) for one in matches] for name, matches in found.items()} == {
        name: [(name, 1.0)] for name in found
    }


def test_a_model_without_picture_embeddings_is_refused(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "a.png").write_bytes(encoded(SCENES[0]))
    build_encoder(tmp_path / "bert", ["word"], seed=0)
    part = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ViTModel(ViTConfig(**part, image_size=32, patch_size=8)).save_pretrained(tmp_path / "vit")
    CLIPImageProcessor().save_pretrained(tmp_path / "vit")
    for name, why in (("bert", "bert"), ("vit", "embeds no pictures")):
        with pytest.raises(DataError, match=why):
            index_pictures(photos, tmp_path / "index", encoder=str(tmp_path / name))
        assert not (tmp_path / "index").exists()


def test_an_index_without_a_model_accepts_none_and_one_with_older_hashes_is_refused(tmp_path: Path) -> None:
    build_picture_index([Entry(encoded(SCENES[0]), "a", "", "row 0")], tmp_path, lambda: None)
    with pytest.raises(RecipeError, match="built without a model"):
        PictureIndex(tmp_path, encoder=IndexEncoder())
    (tmp_path / "index.json").write_text('{"kind": "pictures", "pictures": 1, "width": 176}')
    for check in (PictureIndex, lambda folder: check_pictures(folder, None)):
        with pytest.raises(DataError, match="built by another version") as caught:
            check(tmp_path)
        assert caught.value.fix == "build it again"


def test_vectors_have_unit_length_and_hashes_are_robust() -> None:
    for image in SCENES[:5]:
        assert np.linalg.norm(layout(image)) == pytest.approx(1, rel=1e-5)
        small = image.resize((80, 60))
        assert np.bitwise_count(perceptual_hash(image) ^ perceptual_hash(small)) <= 6
    assert np.isfinite(layout(Image.new("RGB", (5, 5)))).all()


def test_a_folder_and_rows_give_the_same_index(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "ferry.png").write_bytes(picture(40, 30))
    assert index_pictures(photos, tmp_path / "one")["pictures"] == 1
    (tmp_path / "rows.jsonl").write_text('{"image": "photos/ferry.png"}\n')
    assert index_pictures(tmp_path / "rows.jsonl", tmp_path / "two")["pictures"] == 1
    (tmp_path / "rows.tsv").write_text("title\timage\nFerry\tphotos/ferry.png\n")
    assert index_pictures(tmp_path / "rows.tsv", tmp_path / "three")["pictures"] == 1
    for name in ("one", "two"):
        (match,) = PictureIndex(tmp_path / name, min_score=0.9).find(picture(40, 30), 5)
        assert match.title == "ferry"


def test_a_missing_or_invalid_picture_is_reported_with_its_row(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"image": "no.png"}\n')
    with pytest.raises(DataError, match=r"no picture at .*no\.png") as caught:
        index_pictures(rows, tmp_path / "index")
    assert "row 0" in caught.value.where
    (tmp_path / "no.png").write_bytes(b"text")
    with pytest.raises(DataError, match="cannot be decoded"):
        index_pictures(rows, tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_pictures_missing_from_the_metadata_are_reported(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    for name in ("a.png", "b.PNG", "more/c.png"):
        (photos / name).write_bytes(encoded(SCENES[0]))
    assert index_pictures(photos, tmp_path / "all")["pictures"] == 3
    (photos / "metadata.jsonl").write_text('{"file_name": "a.png"}\n')
    with pytest.raises(DataError, match=r"2 of 3 pictures have no line in .*: b\.PNG, more/c\.png"):
        index_pictures(photos, tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_an_error_about_a_picture_names_its_file_and_row(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"image": "broken.png", "title": "t"}\n')
    with pytest.raises(DataError) as caught:
        index_pictures(rows, tmp_path / "index")
    assert caught.value.where == f"{rows}, row 0"
    rows.write_text('{"text": "a passage", "id": 1}\n')
    with pytest.raises(DataError, match="it has text, id") as caught:
        index_pictures(rows, tmp_path / "index")
    assert "without --pictures" in caught.value.fix
