"""From advantages to new weights."""
