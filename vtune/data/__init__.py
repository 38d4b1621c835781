"""Readers of public formats, one file per format, and synthetic puzzles."""
