"""Evaluation suites that ship with vtune."""
