"""One process per device: started, watched, sent orders, and ended together."""
