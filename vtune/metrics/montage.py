"""Trajectory montage: the target, the boxes that calls showed and what came back, side by side."""

from collections.abc import Iterator

from PIL import Image, ImageDraw

from vtune.errors import DataError
from vtune.schema.pixels import decode_picture
from vtune.schema.trajectory import Trajectory

HEIGHT = 256
"""Height of a montage in pixels."""
WIDTH = 512
"""Maximum width of one picture in it."""
GAP = 4
TEXT = 600
"""Characters of the reply shown below a montage."""


def montage(trajectory: Trajectory) -> Image.Image:
    """The trajectory's pictures side by side, in order; on each, the boxes that calls cropped from it."""
    boxes: dict[int, list[tuple[float, ...]]] = {}
    for call in trajectory.calls:
        for crop in call.crops:
            boxes.setdefault(crop.image, []).append(tuple(crop.bbox))
    tiles = list(_tiles(trajectory, boxes)) or [_unseen()]
    width = sum(tile.width for tile in tiles) + GAP * (len(tiles) - 1)
    canvas = Image.new("RGB", (width, HEIGHT), "white")
    left = 0
    for tile in tiles:
        canvas.paste(tile, (left, 0))
        left += tile.width + GAP
    return canvas


def caption(trajectory: Trajectory) -> str:
    """The sample, its answer and reward, and the end of the reply."""
    reward = trajectory.reward
    earned = "unscored" if reward is None or reward.total is None else f"reward {reward.total:.3f}"
    answer = "no answer" if trajectory.answer is None else f"answer {trajectory.answer}"
    return f"{trajectory.sample_id}: {answer}, {earned}\n{trajectory.reply[-TEXT:]}"


def _unseen() -> Image.Image:
    """Placeholder for a picture that is broken or too large to be decoded."""
    tile = Image.new("RGB", (HEIGHT, HEIGHT), "lightgrey")
    ImageDraw.Draw(tile).text((GAP, GAP), "not shown: broken, or too large", fill="black")
    return tile


def _tiles(trajectory: Trajectory, boxes: dict[int, list[tuple[float, ...]]]) -> Iterator[Image.Image]:
    for number, picture in enumerate(trajectory.images):
        if picture.data is None:
            continue
        try:
            shown = decode_picture(picture.data)
        except DataError:
            yield _unseen()
            continue
        draw = ImageDraw.Draw(shown)
        for box in boxes.get(number, ()):
            draw.rectangle(box, outline="red", width=max(1, shown.width // 150))
        scale = min(HEIGHT / shown.height, WIDTH / shown.width)
        yield shown.resize((max(1, round(shown.width * scale)), max(1, round(shown.height * scale))))
