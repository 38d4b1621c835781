"""What callers pass to the sandbox, and what they get back."""

from dataclasses import dataclass
from typing import Literal

from vtune.schema.box import Box
from vtune.schema.trajectory import Status

Isolation = Literal["auto", "namespaces", "flat", "unsafe"]
"""`auto` takes the best tier of the machine and refuses to run without one. `unsafe` is no protection."""
Layer = Literal["landlock", "seccomp", "namespaces", "uid"]
"""A part of the protection that can be left out, to see that the others and the checks do their work."""
Decode = Literal["host", "confined"]
"""Who turns a returned file into pixels: the trainer's own libraries, or a session made for it, so that no
byte that a model's code wrote is parsed by the trainer, but what contained
code had Pillow or OpenCV write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may use. The numbers are ours unless a source is named."""

    seconds: float = 10.0
    """Wall-clock seconds of one call; the code is then interrupted, its state kept (10 in CodeV's code)."""
    grace: float = 2.0
    """Seconds beyond `seconds` after which the process is killed and its state lost."""
    cpu_seconds: int = 600
    """CPU seconds of a whole session; a second line of defence behind the wall clock."""
    memory_mb: int = 2048
    """Address space beyond what the fork server holds, in MiB."""
    file_mb: int = 64
    """Largest file that may be written, in MiB."""
    workspace_mb: int = 256
    """All files of a session together, in MiB."""
    workspace_files: int = 2000
    """Files and folders of a session."""
    open_files: int = 64
    code_chars: int = 65_536
    output_chars: int = 8_192
    """Printed text kept of one call."""
    error_chars: int = 4_000
    images_per_call: int = 5
    """Pictures returned by one call (CodeV keeps the first five)."""
    max_pixels: int = 25_000_000
    """Pixels of one returned picture: three times 4K. Decoding it takes some 300 MB."""
    sessions: int = 1024
    """That live at the same time; fewer where memory is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCrop:
    """A region of an input image that a call cut out or showed."""

    bbox: Box
    """xyxy in pixels of input image number `image`."""
    image: int
    """0-based number of the input image."""
    shown: int | None
    """Index into `Execution.images` of the picture that shows it, None where none does."""
    matrix: tuple[float, ...] | None = None
    """From pixels of that picture to pixels of the input, as of `vtune.schema.trajectory.Crop`. It is the
    session's word: whoever pays for it looks at the pixels first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How one piece of code ended and what it left."""

    status: Status
    output: str = ""
    """What was printed, with notes of the sandbox at its end."""
    error: str = ""
    """Why the code did not run to its end, empty for `ok`; at most `Limits.error_chars`."""
    images: tuple[bytes, ...] = ()
    """New pictures, encoded as PNG or JPEG, in order of creation."""
    names: tuple[str, ...] = ()
    """Their file names in the workspace, one each."""
    crops: tuple[ShownCrop, ...] = ()
    """One for each part of an input that a picture shows, then the regions that were cut out only."""
    seconds: float = 0.0
