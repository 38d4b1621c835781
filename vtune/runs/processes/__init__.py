"""One process per device: started, watched, given orders, and ended together."""
