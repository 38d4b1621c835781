"""`vtune data`: samples, traces and indexes made, imported, exported, looked at and checked.

Formats are in `vtune/data/`; here they are read and written file by file, with a list of what was left out.
"""
