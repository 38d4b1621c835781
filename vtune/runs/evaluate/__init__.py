"""`vtune eval`: a suite's questions, answered in portions, scored and counted.

An evaluation is a rollout without an update; training (`train/online_eval.py`) uses this package too.
"""
