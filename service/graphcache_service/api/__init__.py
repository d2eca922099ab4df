"""HTTP: one file an endpoint. Each parses, calls core once, and shapes the answer."""
