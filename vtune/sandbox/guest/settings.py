"""What the trainer passes to its sandbox at startup: one JSON document on the command line."""

import json
from dataclasses import asdict, dataclass

EARLY_PIXELS = 1 << 20
"""Of an input that is decoded before it is asked for. Ours: 3 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one sandbox; every session has the same."""

    folder: str
    """The sandbox's own folder, absolute and resolved."""
    trainer: int
    """Process id; when it ends, the sandbox ends."""
    isolation: str
    """`auto`, `namespaces`, `flat` or `unsafe`."""
    without: tuple[str, ...]
    """Layers left out on purpose: `landlock`, `seccomp`, `namespaces`, `uid`."""
    landlock_abi: int
    """Highest Landlock interface to use."""
    warm: int
    """Idle sessions kept ready, at most."""
    seconds: float
    """Wall-clock seconds of one call."""
    memory: int
    """Bytes of address space of a session beyond what the fork server holds."""
    cpu_seconds: int
    """CPU seconds of a session's whole life."""
    file_bytes: int
    """Largest file that may be written."""
    open_files: int
    output_chars: int
    """Printed text kept of one call."""
    images_per_call: int
    max_pixels: int
    """Of one picture."""
    max_side: int
    """Pixels of its longer side."""
    max_ratio: int
    """Longer side / shorter side of one picture."""
    max_scans: int
    """Of a JPEG: passes over the picture."""
    max_scanned: int
    """Of a JPEG: passes x pixels."""
    max_packed_pixels: int
    """Of a BMP with run lengths."""

    def to_json(self) -> str:
        """As one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """What `to_json` wrote."""
        return cls(**json.loads(text))

    def allows(self, width: int, height: int, content: bytes) -> bool:
        """Whether the trainer may show a picture of this size and content; another is not worth a look."""
        # Coded pixels do not contain the mark of a scan, a thumbnail may.
        scans = content.count(b"\xff\xda") - 1
        if content.startswith(b"\xff\xd8") and (
            scans > self.max_scans or scans * width * height > self.max_scanned
        ):
            return False
        if content.startswith(b"BM") and content[30:34] in (b"\1\0\0\0", b"\2\0\0\0"):
            return width * height <= self.max_packed_pixels
        shorter, longer = min(width, height), max(width, height)
        return (
            width * height <= self.max_pixels
            and longer <= self.max_side
            and longer <= self.max_ratio * shorter
        )

    @property
    def output_bytes(self) -> int:
        """Room for the printed text of one call: a character takes at most four bytes."""
        return 4 * self.output_chars
