"""The rules: decisions as pure functions, and the transactions around them. Knows nothing of HTTP."""
