"""From many samples to fewer and better ones, each drop with its reason."""
