"""Each verb told from top to bottom."""
