"""`vtune report`: what run folders say about themselves; tables and pages are drawn in `vtune/report/`."""
