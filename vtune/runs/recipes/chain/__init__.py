"""Whether recipes join: what one writes is what the next one reads, seen on a few rows, without a model."""
