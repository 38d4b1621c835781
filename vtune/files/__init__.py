"""Files of any origin: opening inputs, preparing outputs, parsing JSON and YAML, cleaning text."""
