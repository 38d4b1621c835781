"""Filters: from many samples to fewer and better ones, with a reason for every drop."""
