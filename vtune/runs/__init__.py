"""Each verb from top to bottom, a room for each kind of story."""
