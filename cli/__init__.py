"""The `vtune` command line: one thin file per verb."""
