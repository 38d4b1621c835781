"""What every tool with a JSON schema has in common: its description and its arguments."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vtune.config import Strict
from vtune.sandbox import ShownCrop
from vtune.schema.box import Box
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Status
from vtune.tools.observation import Observation, encodable, inert

if TYPE_CHECKING:
    from vtune.tools.exchanges import Exchanges, WebRules
    from vtune.tools.similarity import ToolType


SOURCES = "addresses:"
"""The line of a call's output below which the addresses stand, one per line."""

Schema = Mapping[str, Any]
"""{"type": "function", "function": {"name", "description", "parameters"}}."""


@dataclass(frozen=True, slots=True)
class View:
    """A picture of the conversation as a tool may use it."""

    data: bytes
    """Encoded: the picture that it was cut out of, or itself."""
    image: int
    """Index into the trajectory's images of what `data` is."""
    region: Box | None
    """What it shows of `data`, xyxy in pixels; None: all."""
    seen: tuple[int, int]
    """(width, height) in pixels in which the policy sees it."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a call is about."""

    sample: Sample
    images: tuple[bytes, ...]
    """The sample's encoded pictures."""
    views: Sequence[View]
    """Every picture of the conversation, in the order in which the policy saw them."""


class Tool(Protocol):
    """A tool. The same arguments about the same scene give the same result."""

    @property
    def schema(self) -> Schema:
        """How it is described to the policy."""
        ...

    def key(self, arguments: Mapping[str, Any], scene: Scene) -> str:
        """What its result depends on, beside the question: calls of one question with one key are one call.

        Raises:
            Mistake: If the arguments are wrong.
        """
        ...

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Observation:
        """Do it.

        Raises:
            Mistake: If the model asked for something that cannot be: it reads why.
            ServiceError: If we failed: the trajectory is not scored.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolPart:
    """A tool as recipes and runs have it."""

    about: str
    """What it does, in a line."""
    opened: Callable[[Any, Path], AbstractAsyncContextManager[Tool]] | None
    """(section of the recipe, JSONL file for what the web says) -> the tool, open as long as a run needs it;
    None: it takes code, which the sandbox runs."""
    on_web: "Callable[[Any, Exchanges, Path], AbstractAsyncContextManager[Tool]] | None" = None
    """(section, record of the web, file as for `opened`) -> the tool, where its section asks the web
    (`asks_web`)."""
    asks_web: "Callable[[Any, WebRules], bool]" = lambda section, web: False
    """(section, what holds for all that ask the web) -> whether it asks over their record: then it is opened
    by `on_web`."""
    section: str = ""
    """Its key under `tools` of a recipe, where that is a field of `ToolsRecipe`; empty: its name."""
    recipe: type[Strict] | None = None
    """What its section says; None: nothing."""
    check: Callable[[Any], None] | None = None
    """(section) -> nothing; raises DataError before a run where what it needs is not there."""
    check_asking: Callable[[Any], None] | None = None
    """(section) -> nothing; raises before a run where it lacks what it asks others with, e.g. a key, or where
    a service of one's own does not answer. Not called where all that it would ask is on record."""
    check_sample: Callable[[Any, Sample], None] | None = None
    """(section, a sample that offers it) -> nothing; raises DataError where the sample lacks something."""
    example: Mapping[str, Any] | None = None
    """Arguments of a call that any picture allows: what it is tried with; of code, `code` alone."""
    settings: Mapping[str, Any] | Callable[[Path], Mapping[str, Any]] = field(default_factory=dict)
    """What its section says then; `recipe` may need some keys. Or what makes them of an empty folder, for an
    index or another file that they name."""
    look: Callable[[int, Box, tuple[int, int]], Mapping[str, Any]] | None = None
    """(number of a picture, region in its pixels, its (width, height)) -> arguments of the call that shows
    the region: what traces of `vtune data make traces` ask for. None: it does not look."""
    credit: "ToolType | None" = None
    """How its calls are told apart when credit is transferred between them; None: it takes no part."""


class Mistake(Exception):
    """What the model did wrong, in the words that it reads."""


def function(name: str, description: str, properties: Schema, required: Sequence[str]) -> Schema:
    """A function's schema in the form of Qwen's template."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": dict(properties),
                "required": list(required),
                "additionalProperties": False,
            },
        },
    }


def check_names(arguments: Mapping[str, Any], schema: Schema) -> None:
    """Check that no argument is missing and none is unknown.

    Raises:
        Mistake: Naming it.
    """
    parameters = schema["function"]["parameters"]
    for name in parameters["required"]:
        if name not in arguments:
            raise Mistake(f'the argument "{name}" is missing')
    known = parameters["properties"]
    for name in arguments:
        if name not in known:
            raise Mistake(
                f'there is no argument "{name[:40]}"; the arguments are {", ".join(known) or "none"}'
            )


def refused(why: str, status: Status = "error") -> Observation:
    """The observation of a call that failed by the model's fault."""
    return Observation(text=f"Error: {inert(why)}", status=status, error=encodable(why))


def shown(
    text: str, images: Sequence[bytes] = (), crops: Sequence[ShownCrop] = (), *, sources: Sequence[str] = ()
) -> Observation:
    """The observation of a call that went well; `text` has one `<image>` a picture.

    `sources` are addresses of the web that it rests on: the trajectory keeps them, unseen by the policy.
    """
    text = encodable(text)
    kept = "\n".join([text, SOURCES, *map(encodable, sources)]) if sources else text
    return Observation(text=text, images=tuple(images), status="ok", output=kept, crops=tuple(crops))
