"""What every tool with a JSON schema has in common: its description and its arguments."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vtune.sandbox import ShownCrop
from vtune.schema.box import Box
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Status
from vtune.sections import Strict
from vtune.tools.observation import Observation, encodable, inert

if TYPE_CHECKING:
    from vtune.tools.exchanges import Exchanges, WebRules
    from vtune.tools.similarity import ToolType


SOURCES = "addresses:"
"""The line of a call's output that is followed by addresses, one per line."""

Schema = Mapping[str, Any]
"""{"type": "function", "function": {"name", "description", "parameters"}}."""


@dataclass(frozen=True, slots=True)
class View:
    """A picture of the conversation, for use by tools."""

    data: bytes
    """The encoded picture that it was cut out of, or the picture itself."""
    image: int
    """Index of `data` among the trajectory's images."""
    region: Box | None
    """The part of `data` that it shows, xyxy in pixels; None: all."""
    seen: tuple[int, int]
    """(width, height) in pixels at which the policy sees it."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The context of a call."""

    sample: Sample
    images: tuple[bytes, ...]
    """The sample's pictures, encoded."""
    views: Sequence[View]
    """Every picture of the conversation, in the order in which the policy saw them."""


class Tool(Protocol):
    """A tool. The same arguments in the same scene give the same result."""

    @property
    def schema(self) -> Schema:
        """Its description for the policy."""
        ...

    def key(self, arguments: Mapping[str, Any], scene: Scene) -> str:
        """What its result depends on besides the question: calls with the same key share a result.

        Raises:
            Mistake: If the arguments are wrong.
        """
        ...

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Observation:
        """Execute the call.

        Raises:
            Mistake: If the model asked for something impossible; the message is shown to it.
            ServiceError: If the failure is ours: the trajectory is not scored.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolPart:
    """A tool as recipes and runs use it."""

    about: str
    """What it does, in one line."""
    opened: Callable[[Any, Path], AbstractAsyncContextManager[Tool]] | None
    """(section of the recipe, JSONL file for web answers) -> the tool, open as long as a run needs it;
    None: it takes code, which the sandbox runs."""
    on_web: "Callable[[Any, Exchanges, Path], AbstractAsyncContextManager[Tool]] | None" = None
    """(section, record of the web, file as for `opened`) -> the tool, if its section uses the web
    (`asks_web`)."""
    asks_web: "Callable[[Any, WebRules], bool]" = lambda section, web: False
    """(section, settings for all tools that use the web) -> whether it uses the web through their record:
    then `on_web` opens it."""
    section: str = ""
    """Its key under `tools` of a recipe, if that is a field of `ToolsRecipe`; empty: its name."""
    recipe: type[Strict] | None = None
    """The type of its section; None: it has none."""
    check: Callable[[Any], None] | None = None
    """(section) -> None; raises DataError before a run if something that it needs is missing."""
    check_asking: Callable[[Any], None] | None = None
    """(section) -> None; raises before a run if it lacks something for asking others, e.g. a key, or if
    a service of the user does not answer. Not called if everything that it would ask is on record."""
    check_sample: Callable[[Any, Sample], None] | None = None
    """(section, a sample that offers it) -> None; raises DataError if the sample lacks something."""
    example: Mapping[str, Any] | None = None
    """Arguments of a call that works with any picture, for testing it; for code, only `code`."""
    settings: Mapping[str, Any] | Callable[[Path], Mapping[str, Any]] = field(default_factory=dict)
    """Its section in that test; `recipe` may have required keys. Or a function that makes the settings, given
    an empty folder for an index or other file that they name."""
    look: Callable[[int, Box, tuple[int, int]], Mapping[str, Any]] | None = None
    """(index of a picture, region in its pixels, its (width, height)) -> arguments of the call that shows
    the region, as used by `vtune data make traces`. None: it cannot show regions."""
    nothing: str = ""
    """Of a search: its answer if it finds nothing."""
    credit: "ToolType | None" = None
    """How its calls are compared for credit transfer; None: it takes no part."""


class Mistake(Exception):
    """A mistake of the model, in words that are shown to it."""


def function(name: str, description: str, properties: Schema, required: Sequence[str]) -> Schema:
    """The schema of a function, in the format of Qwen's template."""
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
        Mistake: Names the argument.
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
    """The observation of a call that failed through the model's fault."""
    return Observation(text=f"Error: {inert(why)}", status=status, error=encodable(why))


def shown(
    text: str, images: Sequence[bytes] = (), crops: Sequence[ShownCrop] = (), *, sources: Sequence[str] = ()
) -> Observation:
    """The observation of a successful call; `text` has one `<image>` per picture.

    `sources` are the web addresses that it is based on: the trajectory keeps them, but the policy does not
    see them.
    """
    text = encodable(text)
    kept = "\n".join([text, SOURCES, *map(encodable, sources)]) if sources else text
    return Observation(text=text, images=tuple(images), status="ok", output=kept, crops=tuple(crops))
