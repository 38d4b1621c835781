"""From verdicts and evidence to one reward per trajectory."""
