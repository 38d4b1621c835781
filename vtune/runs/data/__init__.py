"""`vtune data`: make, import, export, index, search, inspect and check samples and traces.

Formats are in `vtune/data/`; this package reads and writes them file by file, listing what was left out.
"""
