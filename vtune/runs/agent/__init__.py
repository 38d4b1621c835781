"""What a run draws with: engine, sandbox, tools and judges, as sections of a recipe say.

A section lives beside what it configures: what it takes, whether it can work here, and how it is opened.
"""
