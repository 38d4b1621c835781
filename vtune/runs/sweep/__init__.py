"""`vtune rl --sweep`: variants of one recipe, each an ordinary run, compared with intervals over seeds."""
