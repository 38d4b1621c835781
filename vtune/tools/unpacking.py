"""Bodies of HTTP that were compressed as gzip or deflate, unpacked while they arrive."""

import zlib

PIECE = 2**12
"""Bytes that are unpacked at a time, ours: all that follows the end of a gzip member is copied."""

GZIP = b"\x1f\x8b"
"""How every member of gzip begins (RFC 1952)."""

ANY_HEADER, NO_HEADER = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS


class Unpacker:
    """Unpacks one body.

    gzip may have several members, one after another (RFC 1952, section 2.2); whatever else follows is
    ignored. `deflate` means zlib's format (RFC 9110, section 8.4.1.2), but many servers leave its header out.

    Args:
        most: Unpacking stops once there are more bytes than this, however well they were compressed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._stream: zlib._Decompress | None = None
        self._after = b""
        """What follows the end of a member: at most its first bytes."""
        self.data = bytearray()
        """What the body holds, so far."""

    @property
    def complete(self) -> bool:
        """Whether the compressed data has come to its own end."""
        return self._stream is None or self._stream.eof

    def feed(self, chunk: bytes) -> None:
        """Unpack the next bytes of the body.

        Raises:
            zlib.error: If they are not compressed in this way.
        """
        for start in range(0, len(chunk), PIECE):
            rest = chunk[start : start + PIECE]
            while rest and len(self.data) <= self._most:
                rest = self._unpacked(rest)

    def _unpacked(self, piece: bytes) -> bytes:
        """What is left of a piece after the end of the member that it belongs to."""
        if self._stream is None:
            self._stream = zlib.decompressobj(_header(piece[0]))
        if self._stream.eof:
            piece = self._after + piece
            if not piece.startswith(GZIP):
                self._after = piece[: len(GZIP)]
                return b""
            self._after, self._stream = b"", zlib.decompressobj(ANY_HEADER)
        self.data += self._stream.decompress(piece, self._most + 1 - len(self.data))
        return self._stream.unused_data


def _header(first: int) -> int:
    """The format of data that begins with this byte, as zlib numbers formats.

    No encoder begins data without a header with 8 in the low four bits, as zlib's header does.
    """
    return ANY_HEADER if first & 0xF == zlib.DEFLATED or first == GZIP[0] else NO_HEADER
