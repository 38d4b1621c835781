"""Coordinate spaces: pixels of the stored picture, thousandths of it, or pixels as the policy saw it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

from vtune.errors import DataError
from vtune.schema.box import Box
from vtune.schema.sample import Sample
from vtune.verifiers.verifier import one_of, where, wrong_option

Space = Literal["pixels", "relative_1000", "shown_pixels"]
"""`relative_1000`: 0 to 1000 from side to side, as in the files of V-Triune and the newer Qwen models.
`shown_pixels`: pixels of the resized picture as the policy saw it, in which Qwen2.5-VL answers."""

REPLY_SPACES = ("pixels", "relative_1000", "shown_pixels")

SPACE_OPTIONS = frozenset(
    {
        "space",
        "reply_space",
        "width",
        "height",
        "shown_width",
        "shown_height",
        "det_verifier_normalized",
    }
)
"""Keys of verifier_parm that `spaces_of` reads."""

SLACK = 1.0
"""Pixels by which a ground-truth box may extend beyond its picture, as some round outwards (ours)."""


@dataclass(frozen=True, slots=True)
class Spaces:
    """Converts coordinates of a reply to those of the ground truth."""

    x_factor: float
    y_factor: float
    x_end: float | None
    """Largest x in the ground truth's space; None if the width of the picture is unknown."""
    y_end: float | None

    def to_truth(self, box: Box) -> Box:
        """Convert a box of the reply to the space of the ground truth."""
        x0, y0, x1, y1 = box
        return x0 * self.x_factor, y0 * self.y_factor, x1 * self.x_factor, y1 * self.y_factor

    def to_reply(self, box: Box) -> Box:
        """Convert a box of the ground truth to the space of the reply."""
        x0, y0, x1, y1 = box
        return x0 / self.x_factor, y0 / self.y_factor, x1 / self.x_factor, y1 / self.y_factor

    def holds(self, box: Box) -> bool:
        """Whether a box of the ground truth is inside its picture, as far as the size is known."""
        x0, y0, x1, y1 = box
        return (
            min(x0, y0) >= -SLACK
            and (self.x_end is None or x1 <= self.x_end + SLACK)
            and (self.y_end is None or y1 <= self.y_end + SLACK)
        )

    def shows(self, box: Box) -> bool:
        """Whether any part of a box in that space is inside the picture, as far as the size is known."""
        x0, y0, x1, y1 = box
        return (
            min(x1, y1) > 0
            and (self.x_end is None or x0 < self.x_end)
            and (self.y_end is None or y0 < self.y_end)
        )


def spaces_of(sample: Sample, *, shown: bool = True) -> Spaces:
    """The spaces that a sample's `verifier_parm` names.

    `space` is that of the ground truth, pixels by default; `reply_space` is that in which the policy is asked
    to answer, by default the same (V-Triune, appendix D). V-Triune's server instead expects replies in
    pixels of the picture as shown: `reply_space: shown_pixels`. `det_verifier_normalized` is
    V-Triune's name for `space: relative_1000`. Sizes are needed only if the two spaces differ:
    `width` and `height` of the stored picture, `shown_width` and `shown_height` of the picture as the policy
    saw it (a run sets these two).

    Args:
        sample: Its verifier must read boxes or points.
        shown: Whether the size that the policy saw must be known already; if not, replies cannot be
            converted, but everything else is checked.

    Raises:
        DataError: If an option is of the wrong type, two contradict each other, or a size is missing.
    """
    space = space_of(sample)
    reply = one_of(sample, "reply_space", REPLY_SPACES, default=space)
    x_end, y_end = _ends(sample, space)
    if reply == space:
        return Spaces(1.0, 1.0, x_end, y_end)
    x_from, y_from = _ends(sample, reply)
    if reply == "shown_pixels" and not shown:
        x_from, y_from = x_from or 1.0, y_from or 1.0
    if x_end is None or y_end is None or x_from is None or y_from is None:
        prefix = "shown_" if reply == "shown_pixels" and (x_from is None or y_from is None) else ""
        raise DataError(
            f"replies are in {reply}, the ground truth in {space}, and a picture's size is missing",
            where=where(sample),
            fix=f"write {prefix}width and {prefix}height into verifier_parm",
        )
    return Spaces(x_end / x_from, y_end / y_from, x_end, y_end)


def pixels_of(sample: Sample) -> Spaces:
    """Converts coordinates of a reply to pixels of the stored picture, whatever the ground truth's space.

    Raises:
        DataError: As for `spaces_of`.
    """
    reply = one_of(sample, "reply_space", REPLY_SPACES, default=space_of(sample))
    own = {k: v for k, v in sample.verifier_parm.items() if k not in ("space", "det_verifier_normalized")}
    return spaces_of(replace(sample, verifier_parm={**own, "space": "pixels", "reply_space": reply}))


def coordinates_in_words(sample: Sample) -> str:
    """The meaning of the numbers in a reply, as text for its question."""
    space = one_of(sample, "reply_space", REPLY_SPACES, default=space_of(sample))
    if space == "relative_1000":
        return "with coordinates from 0 to 1000, relative to the width and the height of the image"
    width, height = _ends(sample, "pixels")
    if space == "shown_pixels" or width is None or height is None:
        return "with coordinates in pixels of the image"
    return f"with coordinates in pixels of the image, which is {width:g} wide and {height:g} high"


def space_of(sample: Sample) -> str:
    """The space of the ground truth, under either of its names.

    Raises:
        DataError: If there is no such space, or the two names contradict each other.
    """
    normalized = sample.verifier_parm.get("det_verifier_normalized")
    if normalized is None:
        return one_of(sample, "space", ("pixels", "relative_1000"), default="pixels")
    if not isinstance(normalized, bool):
        raise wrong_option(sample, "det_verifier_normalized", normalized, "true or false")
    published = "relative_1000" if normalized else "pixels"
    if one_of(sample, "space", ("pixels", "relative_1000"), default=published) != published:
        raise DataError(
            f"`det_verifier_normalized` {normalized} means {published}, and `space` says otherwise",
            where=where(sample),
            fix="keep one of them in verifier_parm",
        )
    return published


def _ends(sample: Sample, space: str) -> tuple[float | None, float | None]:
    """Largest x and y of a space."""
    if space == "relative_1000":
        return 1000.0, 1000.0
    prefix = "shown_" if space == "shown_pixels" else ""
    return _side(sample, f"{prefix}width"), _side(sample, f"{prefix}height")


def _side(sample: Sample, key: str) -> float | None:
    value = sample.verifier_parm.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise wrong_option(sample, key, value, "a number of pixels above 0")
    return float(value)


def answers_in_shown_pixels(sample: Sample) -> bool:
    """Whether the reply's coordinates depend on the size at which the policy saw the picture."""
    return sample.verifier_parm.get("reply_space") == "shown_pixels"


def with_shown_size(sample: Sample, size: tuple[int, int]) -> Sample:
    """The sample with the (width, height) at which the policy saw it; existing sizes take precedence."""
    width, height = size
    return with_parm(sample, {"shown_width": width, "shown_height": height})


def with_parm(sample: Sample, more: Mapping[str, Any]) -> Sample:
    """The sample with further options for its verifier; options that it already has take precedence."""
    own = {key: value for key, value in sample.verifier_parm.items() if value is not None}
    return replace(sample, verifier_parm={**more, **own})
