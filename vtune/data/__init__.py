"""Public formats to samples, one file a format; the synthetic lens puzzles."""
