"""A finished evaluation in the formats of other harnesses: `vtune export FOLDER OUT --as FORMAT`."""
