"""`vtune sft` and `vtune rl`: from samples to new weights, in runs that may last for days.

`loop.py` is a step of reinforcement training from top to bottom; the modules beside it are its parts:
rollouts, groups, updates, checkpoints, metrics, evaluations in between.
"""
