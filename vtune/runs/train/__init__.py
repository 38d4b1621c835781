"""`vtune sft` and `vtune rl`: from samples to new weights, and what a run needs to continue for days.

`loop.py` is a step of reinforcement training from top to bottom; the modules beside it are its parts: draws,
groups, updates, checkpoints, metrics, evaluations in between.
"""
