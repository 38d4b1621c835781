"""The read model of viewers: where trajectories lie, an index of them, and one of them as a document."""
