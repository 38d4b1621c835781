"""Load a vision-language model and its processor; build the tiny one."""
