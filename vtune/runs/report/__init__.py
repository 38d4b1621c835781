"""`vtune report`: what run folders report; `vtune/report/` makes the tables and pages."""
