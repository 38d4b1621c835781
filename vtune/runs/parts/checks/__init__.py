"""What each kind of part promises, tested on small examples: the contract of `vtune parts check`."""
