"""The service: stores compiled graphs once for a whole cluster, and lets one machine compile what is missing."""
