"""Blob stores of both kinds for every test here: a folder, and a blob_bucket of a real S3 server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from fakes.running_service import Holder, RunningService
from fakes.s3_server import ACCESS_KEY_ID, BLOB_BUCKET, SECRET_ACCESS_KEY, S3Server, s3_server

from graphcache_service.blobs.base import BlobStore
from graphcache_service.blobs.folder import FolderBlobs
from graphcache_service.blobs.s3 import S3Blobs, S3Location

__all__ = ["s3_server"]


@pytest.fixture
def s3_location(s3_server: S3Server) -> S3Location:
    return S3Location(
        blob_bucket=BLOB_BUCKET,
        prefix=f"graphs/{uuid4().hex}",
        endpoint=s3_server.endpoint,
        region="us-east-1",
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=SECRET_ACCESS_KEY,
    )


@pytest.fixture
async def folder_store(tmp_path: Path) -> AsyncIterator[FolderBlobs]:
    store = FolderBlobs(tmp_path / "blobs")
    yield store
    await store.close()


@pytest.fixture
async def s3_store(tmp_path: Path, s3_location: S3Location) -> AsyncIterator[S3Blobs]:
    store = S3Blobs(s3_location, tmp_path / "staging")
    yield store
    await store.close()


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest) -> BlobStore:
    """Either kind: what a test of it proves holds for both."""
    store: BlobStore = request.getfixturevalue(f"{request.param}_store")
    return store


MAX_BLOB_BYTES = 64 << 20


@pytest.fixture(scope="session")
def folder_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    service = RunningService(
        tmp_path_factory.mktemp("folder-service"), max_blob_bytes=MAX_BLOB_BYTES, x_accel_prefix="/blobs-inside/"
    )
    yield service
    service.kill()


@pytest.fixture(scope="session")
def s3_service(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[RunningService]:
    service = RunningService(
        tmp_path_factory.mktemp("s3-service"),
        max_blob_bytes=MAX_BLOB_BYTES,
        s3_allow_http=True,
        **s3_server.settings(BLOB_BUCKET, f"services/{uuid4().hex}"),
    )
    yield service
    service.kill()


@pytest.fixture(scope="session")
def slow_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Its uploads have a fifth of a second."""
    service = RunningService(tmp_path_factory.mktemp("slow-service"), upload_grace_s=0.2, upload_min_bytes_per_s=1e9)
    yield service
    service.kill()


@pytest.fixture
def max_blob_bytes() -> int:
    return MAX_BLOB_BYTES


@pytest.fixture(params=["folder", "s3"])
def service(request: pytest.FixtureRequest) -> RunningService:
    """A service of either kind, shared by all tests: each uses keys and bytes of its own."""
    service: RunningService = request.getfixturevalue(f"{request.param}_service")
    return service


@pytest.fixture
def holder(service: RunningService) -> Iterator[Holder]:
    holder = Holder(service)
    yield holder
    holder.close()
