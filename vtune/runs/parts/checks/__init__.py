"""What a part of each kind promises, tried on small examples: the contract of `vtune parts check`."""
