"""Blobs: immutable bytes named by their sha256, in a folder or in an S3 bucket."""
