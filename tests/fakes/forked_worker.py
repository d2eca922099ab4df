"""A real worker that starts in a moment, drains the queue of a service with the stub toolchain, and may die at a step.

python -m fakes.forked_worker
"""

from pathlib import Path
from typing import Any

from fakes.forker import serve_orders

PIECE_BYTES = 512
"""So that the upload of a small graph has a middle."""


def work(order: dict[str, Any]) -> None:
    from graphcache_client import ServiceClient, uploads
    from graphcache_runtime.worker.settings import Machine, settings_for
    from graphcache_runtime.worker.worker import Worker

    uploads.PIECE_BYTES = PIECE_BYTES
    settings = settings_for(Machine(2, 16 * 2**30), ("stub",), drain=True)
    folder = Path(order["folder"])
    folder.mkdir(parents=True)
    with ServiceClient(order["url"]) as service:
        Worker(service, settings, {"stub-1.0": "stub"}, folder).run()


def main() -> None:
    # Loaded once; a fork then has it.
    import graphcache_client  # noqa: F401
    import graphcache_runtime.worker.worker  # noqa: F401

    serve_orders(work)


if __name__ == "__main__":
    main()
