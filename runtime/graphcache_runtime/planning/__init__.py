"""Decides, from costs and from what the router did: hot sets, ladders, the keys a run will need."""
