"""What PUT of a blob does: through HTTP, by a service on a folder and one on S3."""

import os
import socket
import time
from typing import Any

import httpx
import pytest
from fakes.running_service import Holder, RunningService, lease_parameters, path_of, sha256


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class RawUpload:
    """A connection that sends an upload by hand."""

    def __init__(self, holder: Holder, content: bytes, lease: dict[str, Any], announced: int | None = None) -> None:
        url = holder.http.base_url
        self.socket = socket.create_connection((url.host, url.port or 80), timeout=30)
        query = "&".join(f"{name}={value}" for name, value in lease_parameters(lease).items())
        length = len(content) if announced is None else announced
        head = f"PUT {path_of(content)}?{query} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n"
        self.send(f"{head}Expect: 100-continue\r\n\r\n".encode())

    def send(self, part: bytes) -> None:
        self.socket.sendall(part)

    def wait_for_100(self) -> None:
        """The service wants the body."""
        assert self._line() == b"HTTP/1.1 100 Continue"

    def status(self) -> int:
        line = self._line()
        return int((self._line() if line == b"HTTP/1.1 100 Continue" else line).split()[1])

    def _line(self) -> bytes:
        """The status line of the next answer."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.socket.recv(1)
        return head.split(b"\r\n")[0]

    def cut(self) -> None:
        """Breaks the connection off, and waits until the other side has seen it."""
        self.socket.shutdown(socket.SHUT_WR)
        while self.socket.recv(1000):
            pass
        self.socket.close()


def test_new_bytes_give_201_and_the_same_again_200(holder: Holder) -> None:
    content, lease = os.urandom(100_000), holder.lease()
    assert holder.put(content, lease).status_code == 201
    assert holder.put(content, lease).status_code == 200


def test_large_upload_is_stored_whole(holder: Holder) -> None:
    content = os.urandom(1 << 20) * 17 + b"odd end"
    path = holder.publish(content)
    assert sha256(holder.http.get(path).content) == sha256(content)


def test_two_keys_of_the_same_bytes_share_one_blob(holder: Holder) -> None:
    content = os.urandom(10_000)
    assert holder.publish(content) == holder.publish(content)
    assert holder.http.get(path_of(content)).content == content


def test_wrong_digest_is_refused_and_not_stored(holder: Holder) -> None:
    content, lease = os.urandom(5_000), holder.lease()
    other = bytes(reversed(content))
    answer = holder.http.put(path_of(content), params=lease_parameters(lease), content=other)
    assert refused(answer) == (422, "digest_mismatch")
    assert refused(holder.complete(content, lease)) == (422, "blob_missing")
    assert refused(holder.complete(other, lease)) == (422, "blob_missing")


@pytest.mark.parametrize("sent", [0, 1_000, 1_500_000])
def test_upload_that_is_cut_leaves_nothing(holder: Holder, sent: int) -> None:
    content, lease = os.urandom(2_000_000), holder.lease()
    upload = RawUpload(holder, content, lease)
    upload.send(content[:sent])
    upload.cut()
    assert refused(holder.complete(content, lease)) == (422, "blob_missing")
    assert holder.put(content, lease).status_code == 201


def test_upload_that_is_cut_keeps_what_was_there(holder: Holder) -> None:
    content = os.urandom(2_000_000)
    path = holder.publish(content)
    upload = RawUpload(holder, content, holder.lease())
    upload.send(content[:1_000_000])
    upload.socket.close()
    assert holder.http.get(path).content == content


def test_nothing_is_visible_during_an_upload(holder: Holder) -> None:
    content, lease = os.urandom(2_000_000), holder.lease()
    upload = RawUpload(holder, content, lease)
    upload.send(content[:-1])
    assert refused(holder.complete(content, lease)) == (422, "blob_missing")
    assert holder.http.get(path_of(content)).status_code == 404
    upload.send(content[-1:])
    assert upload.status() == 201
    assert holder.complete(content, lease).status_code == 200


def test_stored_bytes_end_an_upload_before_its_body(holder: Holder) -> None:
    content = os.urandom(2_000_000)
    holder.publish(content)
    upload = RawUpload(holder, content, holder.lease())
    assert upload.status() == 200


def test_too_large_is_refused_before_its_body(holder: Holder, max_blob_bytes: int) -> None:
    upload = RawUpload(holder, b"any", holder.lease(), announced=max_blob_bytes + 1)
    assert upload.status() == 413


def test_length_must_be_announced(holder: Holder) -> None:
    answer = holder.http.put(path_of(b"any"), params=lease_parameters(holder.lease()), content=iter([b"any"]))
    assert refused(answer) == (411, "length_required")


def test_empty_upload_is_refused(holder: Holder) -> None:
    assert refused(holder.put(b"", holder.lease())) == (422, "invalid_request")


def test_upload_without_a_lease_is_refused(holder: Holder) -> None:
    answer = holder.http.put(path_of(b"any"), content=b"any")
    assert refused(answer) == (422, "invalid_request")
    assert answer.json()["field"] == "compile_id"


def test_upload_under_a_lease_that_was_released_is_refused(holder: Holder) -> None:
    content, lease = os.urandom(1_000), holder.lease()
    holder.http.post(f"/v1/leases/{lease['compile_id']}/release", json={"generation": lease["generation"]})
    assert refused(holder.put(content, lease)) == (409, "lease_expired")


def test_upload_under_an_unknown_lease_is_refused(holder: Holder) -> None:
    lease = {"compile_id": "0" * 32, "generation": 1}
    assert refused(holder.put(b"any", lease)) == (404, "not_found")


def test_lease_that_ends_during_an_upload_stores_nothing(holder: Holder) -> None:
    content, lease = os.urandom(2_000_000), holder.lease()
    upload = RawUpload(holder, content, lease)
    upload.wait_for_100()  # the lease was looked at
    upload.send(content[:-1])
    holder.http.post(f"/v1/leases/{lease['compile_id']}/release", json={"generation": lease["generation"]})
    upload.send(content[-1:])
    assert upload.status() == 409
    assert refused(holder.complete(content, holder.lease())) == (422, "blob_missing")


def part(start: int, stop: int, size_bytes: int) -> dict[str, str]:
    return {"Content-Range": f"bytes {start}-{stop - 1}/{size_bytes}"}


def put_part(holder: Holder, content: bytes, lease: dict[str, Any], start: int, stop: int) -> httpx.Response:
    return holder.http.put(
        path_of(content),
        params=lease_parameters(lease),
        content=content[start:stop],
        headers=part(start, stop, len(content)),
    )


def where(holder: Holder, content: bytes, lease: dict[str, Any]) -> httpx.Response:
    headers = {"Content-Range": f"bytes */{len(content)}"}
    return holder.http.put(path_of(content), params=lease_parameters(lease), headers=headers)


def test_upload_in_parts_is_one_blob(holder: Holder) -> None:
    content, lease = os.urandom(3_000_000), holder.lease()
    assert "Range" not in where(holder, content, lease).headers
    first = put_part(holder, content, lease, 0, 1_000_000)
    assert (first.status_code, first.headers["Range"]) == (308, "bytes=0-999999")
    assert put_part(holder, content, lease, 1_000_000, 2_000_000).status_code == 308
    assert put_part(holder, content, lease, 2_000_000, 3_000_000).status_code == 201
    assert where(holder, content, lease).status_code == 200
    assert holder.complete(content, lease).status_code == 200


def test_part_from_elsewhere_tells_where_to_go_on(holder: Holder) -> None:
    content, lease = os.urandom(3_000_000), holder.lease()
    put_part(holder, content, lease, 0, 1_000_000)
    answer = put_part(holder, content, lease, 2_000_000, 3_000_000)
    assert (answer.status_code, answer.headers["Range"]) == (308, "bytes=0-999999")


def test_upload_in_parts_goes_on_after_a_broken_connection(holder: Holder) -> None:
    content, lease = os.urandom(3_000_000), holder.lease()
    url = holder.http.base_url
    broken = socket.create_connection((url.host, url.port or 80), timeout=30)
    query = "&".join(f"{name}={value}" for name, value in lease_parameters(lease).items())
    head = f"PUT {path_of(content)}?{query} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n"
    broken.sendall(f"{head}Content-Range: bytes 0-2999999/3000000\r\n\r\n".encode() + content[:2_000_000])
    while "Range" not in where(holder, content, lease).headers:
        time.sleep(0.01)
    broken.shutdown(socket.SHUT_WR)
    while broken.recv(1000):
        pass
    received = int(where(holder, content, lease).headers["Range"].removeprefix("bytes=0-")) + 1
    assert 1_000_000 < received <= 2_000_000  # what the server had not handed on yet is sent again
    assert put_part(holder, content, lease, received, len(content)).status_code == 201


def test_parts_with_a_wrong_byte_are_refused_and_begin_anew(holder: Holder) -> None:
    content, lease = os.urandom(2_000_000), holder.lease()
    put_part(holder, content, lease, 0, 1_000_000)
    answer = holder.http.put(
        path_of(content),
        params=lease_parameters(lease),
        content=bytes(1_000_000),
        headers=part(1_000_000, 2_000_000, 2_000_000),
    )
    assert refused(answer) == (422, "digest_mismatch")
    assert "Range" not in where(holder, content, lease).headers


@pytest.mark.parametrize("header", ["bytes 0-9/5", "bytes 5-4/10", "bytes 0-98/100", "chunks 0-2/3", "bytes 0-2/*"])
def test_content_range_that_is_none_is_refused(holder: Holder, header: str) -> None:
    answer = holder.put(b"any", holder.lease(), **{"Content-Range": header})
    assert refused(answer) == (422, "invalid_request")
    assert answer.json()["field"] == "Content-Range"


def test_slow_upload_ends_with_408(slow_service: RunningService) -> None:
    holder = Holder(slow_service)
    upload = RawUpload(holder, b"some bytes", holder.lease())
    upload.send(b"s")
    assert upload.status() == 408
    holder.close()
