"""One client for every model that judges, and its prompts."""
