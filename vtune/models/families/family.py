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
"""What can be frozen, and is measured by itself."""

Grid = tuple[int, int, int]
"""(t, h, w) of a picture in patches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of a family's tokenizer that conversations are made of."""

    opens: str
    """Before the placeholders of a picture."""
    image: str
    """A picture's placeholder, once for each of its tokens."""
    closes: str
    """Behind them."""
    others: tuple[str, ...]
    """Further placeholders, which nobody may write."""
    turn: str
    """Opens a turn."""
    marks: str
    """What added tokens begin with that mean something though the tokenizer may not call them special."""
    inert: tuple[str, str]
    """A character of every special token, and what it becomes in text that spells one."""

    @property
    def placeholders(self) -> tuple[str, ...]:
        """All that stand for pictures, or around them."""
        return self.opens, self.image, self.closes, *self.others


class PictureProcessor(Protocol):
    """An image processor of transformers as its family uses it."""

    @property
    def stock(self) -> Any:
        """The processor itself."""
        ...

    @property
    def side(self) -> int:
        """Of a patch, in pixels."""
        ...

    def levels(self, picture: Image.Image, least: int, most: int) -> "tuple[torch.Tensor, Grid, int]":
        """A picture as the vision tower takes it, but for the arithmetic on its values.

        Args:
            picture: RGB, decoded.
            least: Pixels (width x height) that it has at least when the policy sees it.
            most: And at most.

        Returns:
            Levels of colours patch by patch, uint8, (t·h·w, …); their grid; the tokens that they fill in a
            prompt.
        """
        ...

    def patches(self, levels: "torch.Tensor") -> "torch.Tensor":
        """What the vision tower takes of levels, float32, (t·h·w, numbers of a patch), where they lie."""
        ...

    def shown(self, levels: "torch.Tensor", grid: Grid) -> Image.Image:
        """The picture that levels show, put together again."""
        ...


class Positions(Protocol):
    """Positions of tokens."""

    def __call__(
        self, token_ids: Sequence[int], grids: Sequence[Grid], *, image_id: int, merge: int
    ) -> "torch.Tensor":
        """Of T tokens, int64, (3, T): see `vtune.models.positions.rope_positions`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModel:
    """How the family's tiny model is built: random weights in a real class."""

    special: tuple[str, ...]
    """Special tokens of the published tokenizer, in its order."""
    end: str
    """Ends a turn."""
    pad: str
    split: str
    """Pre-tokenizer: the regular expression that texts are split by."""
    template: str
    """Chat template."""
    model: Callable[[Any], Any]
    """(tokenizer) -> model."""
    files: Mapping[str, Mapping[str, Any]]
    """The processor's files: name -> content. A stock AutoProcessor loads them too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All that training and rollouts have to know of a family; its name is transformers' `model_type`.

    Its classes have what transformers gives such models: `model.language_model` with a `rotary_emb`
    and `layers` of dense attention and gated maps, `lm_head`, and `get_image_features`.
    """

    about: str
    """What it is, in a line."""
    tokens: Tokens
    tools: ToolTemplate
    """In which it was taught to call tools."""
    positions: Positions
    processor: Callable[[Any], PictureProcessor]
    """(image processor of transformers) -> the same as this family uses it."""
    vision: re.Pattern[str]
    """Found in the names of parameters and modules of the vision tower, its connector included."""
    connector: re.Pattern[str]
    """Found in those names of `vision` that are the connector's: what makes tokens of patches."""
    layer: re.Pattern[str]
    """Found in the names of what is in a layer of either tower; its first group is the layer's number."""
    layered_features: str = ""
    """Attribute of what `get_image_features` gives that has a list of features for each of several layers."""
    fused: bool
    """Whether its norms are plain root-mean-square norms, and its patches as large as the window of their
    convolution, so that `vtune.models.fused` computes the same in fewer passes."""
    ragged_vision: bool = False
    """Whether its vision tower takes pictures one after another, and gives all of their lengths to an
    attention function that has "flash" in its name, so that `vtune.models.varlen` saves it a loop."""
    lora_targets: tuple[str, ...]
    """Linear maps that adapters are proposed for."""
    shape: Callable[[Mapping[str, Any]], Shape]
    """(configuration as a mapping) -> its shape; KeyError where a key is missing."""
    sizes: Mapping[str, Mapping[str, Any]]
    """Published models: name -> what their `config.json` says of widths. No two of a table share a size."""
    named: Callable[[str], bool | None]
    """Whether a folder's or a hub's name speaks of this family; None where it says nothing of any."""
    inputs: "Callable[[torch.Tensor, int, torch.Tensor, Sequence[Grid]], dict[str, torch.Tensor]]"
    """(token ids (1, T), id of the placeholder, patches of all pictures, their grids) -> what the model's own
    forward pass takes."""
    tiny: TinyModel

    def part_of(self, name: str) -> Part:
        """The part that a parameter or module belongs to, by its name."""
        if self.vision.search(name):
            return "connector" if self.connector.search(name) else "vision"
        return "language"
