"""What generates a run's rollouts: engine, sandbox, tools and judges, opened as the recipe says.

Each section lives next to what it configures: its settings, the check that it can work here, and how it is
opened.
"""
