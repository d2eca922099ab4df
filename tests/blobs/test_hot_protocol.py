"""The short way of hot blobs: the same answers as the long one, and never for what is not a plain GET."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.running_service import Holder, RunningService, lease_parameters, path_of, sha256
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from graphcache_service.api import hot_protocol
from graphcache_service.api.hot_protocol import head_of, missing_parts, plain_get

DIGEST = "ab" * 32
PLAIN = f"GET /v1/blobs/{DIGEST} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n".encode()
CONTENT = os.urandom(5_000)


@pytest.fixture
def holder(folder_service: RunningService) -> Iterator[Holder]:
    holder = Holder(folder_service)
    path = holder.publish(CONTENT)
    holder.http.get(path)  # from now on it is hot
    yield holder
    holder.close()


@pytest.fixture
def connection(holder: Holder) -> Iterator[socket.socket]:
    url = holder.http.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        yield connection


def get(*headers: str, path: str = path_of(CONTENT)) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next answer on a connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1)
    status, *lines = received[:-4].decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    body = b""
    while len(body) < int(headers["content-length"]):
        body += connection.recv(int(headers["content-length"]) - len(body))
    return int(status.split()[1]), headers, body


def test_plain_get_is_recognized() -> None:
    assert plain_get(PLAIN) == (DIGEST, "Bearer t")
    assert plain_get(PLAIN.replace(b"Host", b"ACCEPT: */*\r\nConnection: keep-alive\r\nHOST")) == (DIGEST, "Bearer t")


@pytest.mark.parametrize(
    "request_",
    [
        PLAIN[:-2],
        PLAIN * 2,
        PLAIN + b"x",
        PLAIN.replace(b"GET", b"PUT"),
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b"ab HTTP", b"ab?redirect=1 HTTP"),
        PLAIN.replace(b"Host", b"Range: bytes=0-1\r\nHost"),
        PLAIN.replace(b"Host", b"If-None-Match: *\r\nHost"),
        PLAIN.replace(b"Host", b"Content-Length: 5\r\nHost"),
        PLAIN.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"),
        PLAIN.replace(b"Host", b"Connection: close\r\nHost"),
        PLAIN.replace(b"Host", b"Connection: upgrade\r\nHost"),
        PLAIN.replace(b"Host", b"X-Graphcache-Accel: 1\r\nHost"),
        PLAIN.replace(b"Host", b"Authorization: Bearer other\r\nHost"),
        PLAIN.replace(b"Host: x", b"Host: x\r\n folded"),
        PLAIN.replace(b"Host:", b"Host :"),
        PLAIN.replace(b"/v1/blobs/", b"/v1/graphs"),
    ],
)
def test_every_other_request_goes_the_long_way(request_: bytes) -> None:
    assert plain_get(request_) is None


def test_both_ways_answer_the_same(holder: Holder) -> None:
    path = path_of(CONTENT)
    short = holder.http.get(path)
    long = holder.http.get(path, headers={"X-Anything": "1"})
    assert (short.status_code, short.content) == (long.status_code, long.content) == (200, CONTENT)
    assert sorted(short.headers.items()) == sorted(long.headers.items())
    assert head_of(sha256(CONTENT), len(CONTENT)).startswith(b"HTTP/1.1 200 OK\r\n")


def test_requests_in_one_packet_are_all_answered_in_order(connection: socket.socket) -> None:
    connection.sendall(get() + get("Range: bytes=0-9") + get())
    assert [answer(connection)[2] for _ in range(3)] == [CONTENT, CONTENT[:10], CONTENT]


def test_request_in_pieces_is_answered_once(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = get()
    for piece in (request[:3], request[3:40], request[40:]):
        connection.sendall(piece)
    assert answer(connection)[2] == CONTENT
    connection.sendall(get())
    assert answer(connection)[2] == CONTENT


def test_body_that_looks_like_a_request_is_a_body(holder: Holder, connection: socket.socket) -> None:
    body = get()
    query = "&".join(f"{name}={value}" for name, value in lease_parameters(holder.lease()).items())
    lines = [f"PUT {path_of(body)}?{query} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    connection.sendall("\r\n".join([*lines, "Expect: 100-continue", "", ""]).encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 100")
    connection.sendall(body)
    status, _, _ = answer(connection)
    assert status == 201
    connection.sendall(get())
    assert answer(connection)[2] == CONTENT


def test_unread_body_that_looks_like_a_request_is_not_answered(connection: socket.socket) -> None:
    body = get()
    connection.sendall(f"PUT {path_of(body)} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    assert answer(connection)[0] == 422
    connection.sendall(body)
    connection.sendall(get("Range: bytes=0-9"))
    assert answer(connection)[2] == CONTENT[:10]


def test_closing_connection_is_closed(connection: socket.socket) -> None:
    connection.sendall(get("Connection: close"))
    assert answer(connection)[2] == CONTENT
    assert connection.recv(1) == b""


def blobs_counted(holder: Holder) -> float:
    counted = 'graphcache_requests_total{method="GET",path="/v1/blobs/{digest}",status="200"} '
    [line] = [line for line in holder.http.get("/metrics").text.splitlines() if line.startswith(counted)]
    return float(line.removeprefix(counted))


def test_both_ways_are_counted(holder: Holder) -> None:
    before = blobs_counted(holder)
    holder.http.get(path_of(CONTENT))
    holder.http.get(path_of(CONTENT), headers={"X-Anything": "1"})
    assert blobs_counted(holder) == before + 2


def test_this_uvicorn_has_what_the_short_way_leans_on() -> None:
    assert missing_parts() == [], "raise the bound of uvicorn in pyproject.toml only with a short way that fits it"


def test_without_what_it_leans_on_there_is_no_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_protocol, "LEANS_ON", {FlowControl: {"write_paused", "gone"}})
    assert missing_parts() == ["FlowControl.gone"]
    route: Any = object()
    assert hot_protocol.hot_protocol(route) is HttpToolsProtocol
