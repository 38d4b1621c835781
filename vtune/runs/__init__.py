"""Each verb from top to bottom, one package per group of verbs."""
