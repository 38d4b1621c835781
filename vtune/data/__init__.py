"""Public formats to samples, one file per format; the synthetic lens puzzles."""
