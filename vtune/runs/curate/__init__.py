"""`vtune curate`: from sources through filters into one file, with a reason for every drop.

Filters are in `vtune/curate/`; this package decides the order in which rows pass through them, what models
are asked, and stores replies so that each is paid for only once.
"""
