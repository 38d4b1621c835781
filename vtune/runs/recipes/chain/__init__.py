"""Whether recipes join: the next one can read what one writes, tested on a few rows without a model."""
