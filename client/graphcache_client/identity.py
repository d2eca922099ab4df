"""Who this process is: a random owner id, and a name for people."""

import os
import secrets
import socket


def new_owner() -> str:
    """A random id of 32 hexadecimal digits. Host names and pids repeat between containers; this does not."""
    return secrets.token_hex(16)


def default_holder() -> str:
    """What people see: the host's name and the process's id."""
    host = "".join(c if c.isalnum() or c in "._-" else "-" for c in socket.gethostname()) or "host"
    return f"{host[:100]}:{os.getpid()}"
