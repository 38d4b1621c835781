"""What generates a run's rollouts: engine, sandbox, tools and judges, opened as the recipe says.

A section lives beside what it configures: what it takes, whether it can work here, and how it is opened.
"""
