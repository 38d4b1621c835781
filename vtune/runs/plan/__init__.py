"""Before a run: memory, time and remedies (`--dry-run`), and what this machine can do (`vtune doctor`)."""
