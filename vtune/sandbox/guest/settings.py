"""What the trainer passes to its sandbox at startup: one JSON document on the command line."""

import json
from dataclasses import asdict, dataclass

EARLY_PIXELS = 1 << 20
"""Pixels of an input that is decoded before it is used. Ours: 3 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one sandbox; they are the same for all its sessions."""

    folder: str
    """The sandbox's own folder, absolute and resolved."""
    trainer: int
    """Process id; when this process ends, the sandbox ends."""
    isolation: str
    """`auto`, `namespaces`, `flat` or `unsafe`."""
    without: tuple[str, ...]
    """Layers left out on purpose: `landlock`, `seccomp`, `namespaces`, `uid`."""
    landlock_abi: int
    """Highest Landlock interface to use."""
    warm: int
    """Idle sessions kept ready, at most."""
    seconds: float
    """Wall-clock seconds per call."""
    memory: int
    """Bytes of address space of a session beyond those of the fork server."""
    cpu_seconds: int
    """CPU seconds over a session's whole life."""
    file_bytes: int
    """Largest file that may be written."""
    open_files: int
    output_chars: int
    """Printed characters kept per call."""
    images_per_call: int
    max_pixels: int
    """Per picture."""
    max_side: int
    """Pixels of a picture's longer side."""
    max_ratio: int
    """Longer side / shorter side of one picture."""
    max_scans: int
    """For a JPEG: passes over the picture."""
    max_scanned: int
    """For a JPEG: passes x pixels."""
    max_packed_pixels: int
    """For a run-length encoded BMP."""

    def to_json(self) -> str:
        """As one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """What `to_json` wrote."""
        return cls(**json.loads(text))

    def allows(self, width: int, height: int, content: bytes) -> bool:
        """Whether the trainer may show a picture of this size and content; if not, it is not examined."""
        # Entropy-coded data cannot contain the scan marker, but a thumbnail may.
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
        """Room for the printed output of one call: a character takes at most four bytes."""
        return 4 * self.output_chars
