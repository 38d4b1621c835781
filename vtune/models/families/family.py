"""What a family of vision-language models declares about itself."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from PIL import Image

from vtune.models.families.hermes import ToolTemplate
from vtune.models.families.shape import Shape

if TYPE_CHECKING:
    import torch

Part = Literal["vision", "connector", "language"]
"""The parts of a model that can be frozen, and whose gradients are measured separately."""

Grid = tuple[int, int, int]
"""(t, h, w) of a picture in patches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of a family's tokenizer that conversations are made of."""

    opens: str
    """Precedes the placeholders of a picture."""
    image: str
    """A picture's placeholder, repeated for each of its tokens."""
    closes: str
    """Follows them."""
    others: tuple[str, ...]
    """Further placeholders, which may never be written."""
    turn: str
    """Opens a turn."""
    marks: str
    """Start of added tokens that have a meaning although the tokenizer may not call them special."""
    inert: tuple[str, str]
    """A character in every special token, and its replacement in text that spells such a token."""

    @property
    def placeholders(self) -> tuple[str, ...]:
        """All tokens that represent pictures, or surround them."""
        return self.opens, self.image, self.closes, *self.others


class PictureProcessor(Protocol):
    """A transformers image processor as its family uses it."""

    @property
    def stock(self) -> Any:
        """The processor itself."""
        ...

    @property
    def side(self) -> int:
        """Side of a patch, in pixels."""
        ...

    def levels(self, picture: Image.Image, least: int, most: int) -> "tuple[torch.Tensor, Grid, int]":
        """A picture as the vision tower takes it, except for the arithmetic on its values.

        Args:
            picture: RGB, decoded.
            least: Minimum number of pixels (width x height) that the policy sees.
            most: Maximum number of pixels.

        Returns:
            Colour values patch by patch, uint8, (t·h·w, …); their grid; the number of tokens that they fill
            in a prompt.
        """
        ...

    def patches(self, levels: "torch.Tensor") -> "torch.Tensor":
        """The vision tower's input for levels, float32, (t·h·w, numbers per patch), on the levels' device."""
        ...

    def shown(self, levels: "torch.Tensor", grid: Grid) -> Image.Image:
        """The picture reassembled from its levels."""
        ...


class Positions(Protocol):
    """A rule for token positions."""

    def __call__(
        self, token_ids: Sequence[int], grids: Sequence[Grid], *, image_id: int, merge: int
    ) -> "torch.Tensor":
        """Positions of T tokens, int64, (3, T): see `vtune.models.positions.rope_positions`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModel:
    """How the family's tiny model is built: random weights in a real class."""

    special: tuple[str, ...]
    """Special tokens of the published tokenizer, in its order."""
    end: str
    """Token that ends a turn."""
    pad: str
    split: str
    """Pre-tokenizer: the regular expression that splits texts."""
    template: str
    """Chat template."""
    model: Callable[[Any], Any]
    """(tokenizer) -> model."""
    files: Mapping[str, Mapping[str, Any]]
    """The processor's files: name -> content. A stock AutoProcessor loads them too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All that training and rollouts need to know about a family; its name is transformers' `model_type`.

    Its models have the usual attributes of transformers: `model.language_model` with a `rotary_emb` and
    `layers` of dense attention and gated MLPs, `lm_head`, and `get_image_features`.
    """

    about: str
    """A one-line description."""
    tokens: Tokens
    tools: ToolTemplate
    """The template in which it was taught to call tools."""
    positions: Positions
    processor: Callable[[Any], PictureProcessor]
    """(transformers image processor) -> the same as this family uses it."""
    vision: re.Pattern[str]
    """Matches names of parameters and modules of the vision tower, including its connector."""
    connector: re.Pattern[str]
    """Matches those names of `vision` that belong to the connector, which turns patches into tokens."""
    layer: re.Pattern[str]
    """Matches names inside a layer of either tower; its first group is the layer's number."""
    layered_features: str = ""
    """Attribute of the output of `get_image_features` that lists the features of several layers, if any."""
    fused: bool
    """Whether its norms are plain root-mean-square norms and its patches as large as the window of their
    convolution, so that `vtune.models.fused` computes the same in fewer passes."""
    ragged_vision: bool = False
    """Whether its vision tower takes several pictures at once, and passes all of their lengths to an
    attention function with "flash" in its name, so that `vtune.models.varlen` saves it a loop."""
    lora_targets: tuple[str, ...]
    """Linear layers suggested as targets for adapters."""
    shape: Callable[[Mapping[str, Any]], Shape]
    """(configuration as a mapping) -> its shape; KeyError if a key is missing."""
    sizes: Mapping[str, Mapping[str, Any]]
    """Published models: name -> the widths in their `config.json`. No two of them have the same size."""
    named: Callable[[str], bool | None]
    """Whether a folder's or hub name refers to this family; None if it mentions no family."""
    inputs: "Callable[[torch.Tensor, int, torch.Tensor, Sequence[Grid]], dict[str, torch.Tensor]]"
    """(token ids (1, T), id of the placeholder, patches of all pictures, their grids) -> arguments of the
    model's own forward pass."""
    tiny: TinyModel

    def part_of(self, name: str) -> Part:
        """The part that a parameter or module belongs to, by its name."""
        if self.vision.search(name):
            return "connector" if self.connector.search(name) else "vision"
        return "language"
