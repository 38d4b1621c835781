"""What a caller of the sandbox gives and gets."""

from dataclasses import dataclass

from vtune.schema.box import Box
from vtune.schema.trajectory import Status


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
    open_files: int = 64
    code_chars: int = 65_536
    output_chars: int = 8_192
    """Printed text kept of one call."""
    error_chars: int = 4_000
    images_per_call: int = 5
    """Pictures returned by one call (CodeV keeps the first five)."""
    max_pixels: int = 50_000_000
    """Pixels of one returned picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCrop:
    """A region of an input image that a call cut out or showed."""

    bbox: Box
    """xyxy in pixels of input image number `image`."""
    image: int
    """0-based number of the input image."""
    shown: int | None
    """Index into `Execution.images` of the picture that shows it, None where none does."""


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
    """One for each picture that shows part of an input, then the regions that were cut out and not shown."""
    seconds: float = 0.0
