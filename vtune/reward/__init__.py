"""From verdicts and evidence to one reward a trajectory."""
