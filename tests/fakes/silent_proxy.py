"""A TCP proxy that can swallow packets, or stall: connections stay open, and nothing arrives any more, or for now."""

import selectors
import socket
import threading
from types import TracebackType
from typing import Self


class SilentProxy:
    """Forwards to ``target`` (``http://host:port``) until it is told to do otherwise."""

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("http://").split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._swallowing = threading.Event()
        self._going_on = threading.Event()
        self._until_stall_bytes = 1 << 60
        self._closed = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def stall_after(self, size_bytes: int) -> None:
        """Once so much more has gone through, nothing does until ``go_on``; nothing is lost either."""
        self._going_on.clear()
        self._until_stall_bytes = size_bytes

    def stalls(self) -> bool:
        return self._until_stall_bytes <= 0

    def go_on(self) -> None:
        self._until_stall_bytes = 1 << 60
        self._going_on.set()

    def swallow(self) -> None:
        """From now on whatever is sent, in either direction, arrives nowhere."""
        self._swallowing.set()

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()
        for end in [self._listener, *self._peers]:
            end.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            if self.stalls():
                self._going_on.wait(0.05)
                continue
            for ready, _ in self._selector.select(timeout=0.05):
                end = ready.fileobj
                assert isinstance(end, socket.socket)
                if end is self._listener:
                    self._accept()
                else:
                    self._forward(end)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._target)
        for one, other in ((near, far), (far, near)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, end: socket.socket) -> None:
        try:
            piece = end.recv(65_536)
            self._until_stall_bytes -= len(piece)
            if piece and not self._swallowing.is_set():
                self._peers[end].sendall(piece)
        except OSError:
            piece = b""
        if not piece:
            self._selector.unregister(end)
            if not self._swallowing.is_set():
                self._shut(self._peers[end])

    @staticmethod
    def _shut(end: socket.socket) -> None:
        try:
            end.shutdown(socket.SHUT_WR)
        except OSError:
            return
