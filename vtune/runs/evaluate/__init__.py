"""`vtune eval`: a suite's questions, drawn in windows, scored and counted.

An evaluation is a rollout without an update; training (`train/online_eval.py`) draws from here too.
"""
