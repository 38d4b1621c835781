"""`vtune serve`: rewards and searches behind HTTP, for runs on other machines."""
