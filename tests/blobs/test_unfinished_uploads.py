"""What an upload to a blob_bucket leaves there when it does not come to its end: nothing."""

import asyncio
import os

from fakes.running_service import Holder, RunningService, lease_parameters, path_of, sha256
from fakes.s3_server import S3Server

from graphcache_service.blobs.s3 import S3Blobs, S3Location


async def test_cancelled_upload_leaves_no_parts(
    s3_store: S3Blobs, s3_server: S3Server, s3_location: S3Location
) -> None:
    content = os.urandom(40 << 20)
    staged = s3_store.staging.new_file(len(content))
    staged.append([content])
    committing = asyncio.create_task(s3_store.commit(staged, sha256(content)))

    async def unfinished() -> list[str]:
        return await asyncio.to_thread(s3_server.unfinished_uploads, s3_location.blob_bucket, s3_location.prefix)

    while not await unfinished():
        assert not committing.done()
    committing.cancel()
    await asyncio.wait([committing])
    await s3_store.close()
    assert committing.cancelled()
    assert await unfinished() == []


def test_upload_that_was_cut_off_leaves_no_parts(s3_service: RunningService, s3_server: S3Server) -> None:
    holder, content = Holder(s3_service), os.urandom(20 << 20)
    lease = holder.lease()
    first = {"Content-Range": f"bytes 0-{len(content) - 2}/{len(content)}"}
    answer = holder.http.put(path_of(content), params=lease_parameters(lease), content=content[:-1], headers=first)
    assert answer.status_code == 308
    assert s3_server.unfinished_uploads("graphcache-blobs", sha256(content)) == []
    holder.close()
