"""From numbers and trajectories to tables."""
