"""What Pillow raises when a picture is damaged, cut short, or no picture."""

import struct
import zlib

from PIL import Image

UNDECODABLE = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    IndexError,
    TypeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""Its readers of damaged files raise all of these, at the head or only when the pixels are asked for."""
