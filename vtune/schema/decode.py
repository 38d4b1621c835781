"""What Pillow raises when a picture is damaged, cut short, or no picture."""

from PIL import Image

UNDECODABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""Its readers of damaged files raise all of these (`UnidentifiedImageError` is an `OSError`)."""
