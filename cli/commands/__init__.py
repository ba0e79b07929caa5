"""One file per command; each is thin and imports what is heavy only when it runs."""
