"""What GET and HEAD of a blob answer: through HTTP, by a service on a folder and one on S3."""

import os
from urllib.parse import quote

import httpx
import pytest
from fakes.running_service import Holder, sha256

SMALL = os.urandom(50_000)
LARGE = os.urandom(3_000_000)
ABSENT = "/v1/blobs/" + "0" * 64


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def content(request: pytest.FixtureRequest) -> bytes:
    """Small blobs are served from memory, large ones as slices: the answers are the same."""
    content: bytes = request.param
    return content


@pytest.fixture
def path(holder: Holder, content: bytes) -> str:
    return holder.publish(content)


def get(holder: Holder, path: str, **headers: str) -> httpx.Response:
    return holder.http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_blob_is_served_whole_and_immutable(holder: Holder, path: str, content: bytes) -> None:
    for _ in range(2):
        answer = get(holder, path)
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["ETag"] == f'"{sha256(content)}"'
        assert "immutable" in answer.headers["Cache-Control"]


def test_head_tells_the_size_and_sends_nothing(holder: Holder, path: str, content: bytes) -> None:
    answer = holder.http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["Content-Length"] == str(len(content))


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=40000-", 40_000, None),
        ("bytes=-7", -7, None),
        ("bytes=0-99999999", 0, None),
    ],
)
def test_range_gives_206(holder: Holder, path: str, content: bytes, header: str, start: int, stop: int | None) -> None:
    answer = get(holder, path, Range=header)
    assert (answer.status_code, answer.content) == (206, content[start:stop])
    first = start % len(content)
    assert answer.headers["Content-Range"] == f"bytes {first}-{first + len(answer.content) - 1}/{len(content)}"


@pytest.mark.parametrize("header", ["bytes=99999999-", "bytes=99999999-99999999", "bytes=-0"])
def test_range_past_the_end_gives_416(holder: Holder, path: str, content: bytes, header: str) -> None:
    answer = get(holder, path, Range=header)
    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == f"bytes */{len(content)}"
    assert answer.json()["code"] == "range_not_satisfiable"


@pytest.mark.parametrize("header", ["bytes=5-2", "bytes=-", "lines=1-2", "bytes=0-1,5-6", "bytes=x-y"])
def test_range_that_cannot_be_read_gives_the_whole(holder: Holder, path: str, content: bytes, header: str) -> None:
    answer = get(holder, path, Range=header)
    assert (answer.status_code, answer.content) == (200, content)


def test_if_range_of_the_same_blob_gives_the_part(holder: Holder, path: str, content: bytes) -> None:
    answer = get(holder, path, Range="bytes=5-", If_Range=f'"{sha256(content)}"')
    assert (answer.status_code, answer.content) == (206, content[5:])


def test_if_range_of_another_blob_gives_the_whole(holder: Holder, path: str, content: bytes) -> None:
    answer = get(holder, path, Range="bytes=5-", If_Range='"other"')
    assert (answer.status_code, answer.content) == (200, content)


@pytest.mark.parametrize("form", ['"{}"', 'W/"{}"', '"other", "{}"', "*"])
def test_if_none_match_gives_304(holder: Holder, path: str, content: bytes, form: str) -> None:
    answer = get(holder, path, If_None_Match=form.format(sha256(content)))
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["ETag"] == f'"{sha256(content)}"'


def test_if_none_match_of_another_blob_gives_the_whole(holder: Holder, path: str, content: bytes) -> None:
    assert get(holder, path, If_None_Match='"other"').content == content


def test_resumed_download_has_the_right_digest(holder: Holder, path: str, content: bytes) -> None:
    head = get(holder, path, Range="bytes=0-9999").content
    rest = get(holder, path, Range="bytes=10000-", If_Range=f'"{sha256(content)}"').content
    assert sha256(head + rest) == sha256(content)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_blob_that_is_not_there_gives_404(holder: Holder, method: str) -> None:
    assert holder.http.request(method, ABSENT).status_code == 404


def test_uploaded_blob_that_no_graph_names_gives_404(holder: Holder) -> None:
    content = os.urandom(1000)
    assert holder.put(content, holder.lease()).status_code == 201
    assert get(holder, f"/v1/blobs/{sha256(content)}").status_code == 404


@pytest.mark.parametrize("name", ["../../graphcache.db", "x" * 64, "A" * 64, "0" * 63, "", "0" * 64 + "/.."])
def test_what_is_no_digest_is_refused(holder: Holder, name: str) -> None:
    answer = get(holder, "/v1/blobs/" + quote(name, safe=""))
    assert answer.status_code == 422
    assert answer.json()["field"] == "digest"


def test_other_methods_are_refused_with_those_that_are_not(holder: Holder) -> None:
    answer = holder.http.delete(ABSENT)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, PUT")
    assert answer.json()["code"] == "method_not_allowed"
