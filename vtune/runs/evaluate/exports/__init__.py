"""A finished evaluation in other harnesses' formats: `vtune export FOLDER OUT --as FORMAT`."""
