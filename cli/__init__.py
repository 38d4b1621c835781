"""The `vtune` command line: one thin file a verb."""
