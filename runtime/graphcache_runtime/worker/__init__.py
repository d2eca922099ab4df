"""The compile worker: claims from the service, runs compiles, publishes."""
