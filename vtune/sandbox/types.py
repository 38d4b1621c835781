"""What callers pass to the sandbox, and what they get back."""

from dataclasses import dataclass
from typing import Literal

from vtune.schema.box import Box
from vtune.schema.trajectory import Status

Isolation = Literal["auto", "namespaces", "flat", "unsafe"]
"""`auto` takes the machine's best tier and refuses to run without one. `unsafe` is no protection."""
Layer = Literal["landlock", "seccomp", "namespaces", "uid"]
"""A part of the protection that can be left out, to verify that the others and the checks work."""
Decode = Literal["host", "confined"]
"""What turns a returned file into pixels: the trainer's own libraries, or a session just for that, so that
the trainer parses no bytes that a model's code wrote, except pictures that contained code had Pillow or
OpenCV write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may use. The numbers are ours unless a source is named."""

    seconds: float = 10.0
    """Wall-clock seconds per call; the code is then interrupted and keeps its state (10 in CodeV's code)."""
    grace: float = 2.0
    """Seconds beyond `seconds` after which the process is killed and its state lost."""
    cpu_seconds: int = 600
    """CPU seconds per session; a second line of defence behind the wall clock."""
    memory_mb: int = 2048
    """Address space beyond that of the fork server, in MiB."""
    file_mb: int = 64
    """Largest file that may be written, in MiB."""
    workspace_mb: int = 256
    """All files of a session together, in MiB."""
    workspace_files: int = 2000
    """Files and folders of a session."""
    open_files: int = 64
    code_chars: int = 65_536
    output_chars: int = 8_192
    """Printed characters kept per call."""
    error_chars: int = 4_000
    images_per_call: int = 5
    """Pictures returned per call (CodeV keeps the first five)."""
    max_pixels: int = 25_000_000
    """Pixels of a returned picture: three times 4K. Decoding it takes some 300 MB."""
    sessions: int = 1024
    """Sessions alive at the same time; fewer if memory is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCrop:
    """A region of an input image that a call cropped or showed."""

    bbox: Box
    """xyxy in pixels of input image number `image`."""
    image: int
    """0-based number of the input image."""
    shown: int | None
    """Index into `Execution.images` of the picture that shows it; None if there is none."""
    matrix: tuple[float, ...] | None = None
    """Maps pixels of that picture to pixels of the input, as in `vtune.schema.trajectory.Crop`. It is the
    session's claim: code that rewards it must check the pixels first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How one piece of code ended and what it left."""

    status: Status
    output: str = ""
    """What was printed, followed by notes of the sandbox."""
    error: str = ""
    """Why the code did not run to its end; empty for `ok`; at most `Limits.error_chars`."""
    images: tuple[bytes, ...] = ()
    """New pictures, encoded as PNG or JPEG, in order of creation."""
    names: tuple[str, ...] = ()
    """Their file names in the workspace, one each."""
    crops: tuple[ShownCrop, ...] = ()
    """One for each part of an input that a picture shows, then the regions that were only cropped."""
    seconds: float = 0.0
