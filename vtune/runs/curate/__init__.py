"""`vtune curate`: sources through filters into one file, each drop with its reason.

Filters are in `vtune/curate/`; here is the order in which rows go through them, what models are asked,
and what is paid for once.
"""
