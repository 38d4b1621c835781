"""Post-train vision-language models that think with images, and audit that their looking is honest."""

__version__ = "0.1.0"
