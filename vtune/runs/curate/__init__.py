"""`vtune curate`: from sources through filters into one file, with a reason for every drop.

Filters are in `vtune/curate/`; here is the order in which rows go through them, what models are asked,
and what is paid for once.
"""
