"""The read model of viewers: where trajectories are, an index of them, and one as a document."""
