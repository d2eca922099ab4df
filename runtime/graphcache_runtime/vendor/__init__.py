"""Shares the cache folder of furiosa-torch itself through the service."""
