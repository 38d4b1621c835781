"""`vtune data`: make, import, export, index, search, inspect and check samples and traces.

Formats are in `vtune/data/`; here they are read and written file by file, with a list of what was left out.
"""
