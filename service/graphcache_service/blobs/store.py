"""Opens the blob store that the settings name."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from graphcache_service.blobs.base import BlobStore, OpenBlob, StoredBlob
from graphcache_service.blobs.errors import BlobDamaged, BlobStoreUnavailable
from graphcache_service.blobs.folder import FolderBlobs
from graphcache_service.blobs.s3 import S3Blobs, S3Location
from graphcache_service.settings import Settings, SettingsError

__all__ = ["BlobDamaged", "BlobStore", "BlobStoreUnavailable", "OpenBlob", "StoredBlob", "open_blob_store"]


def open_blob_store(settings: Settings) -> BlobStore:
    """The folder or blob_bucket of ``settings.blob_location()``. Sweeps what dead processes left in its staging folder.

    Uploads to a blob_bucket gather in ``staging`` in data_dir first. Credentials that the settings lack come from the
    environment's AWS variables or the machine's role.

    Raises:
        SettingsError: a URL of a kind that is not served.
        BlobStoreUnavailable: the folder cannot be used. A blob_bucket is first asked by ``check``.
    """
    location = settings.blob_location()
    if "://" not in location:
        return FolderBlobs(Path(location))
    return S3Blobs(s3_location(settings, location), settings.data_dir / "staging")


def s3_location(settings: Settings, location: str) -> S3Location:
    """Parses ``s3://blob_bucket/prefix``.

    Raises:
        SettingsError: another scheme, no name, or an unencrypted endpoint that was not allowed.
    """
    url = urlsplit(location)
    if url.scheme != "s3" or not url.netloc:
        raise SettingsError(f"blob_store {location!r}: use a folder or s3://blob_bucket/prefix")
    if (settings.s3_endpoint or "").startswith("http://") and not settings.s3_allow_http:
        raise SettingsError("s3_endpoint is not encrypted: use https, or set s3_allow_http")
    return S3Location(
        blob_bucket=url.netloc,
        prefix=url.path.strip("/"),
        endpoint=settings.s3_endpoint,
        public_endpoint=settings.s3_public_endpoint,
        region=settings.s3_region,
        access_key_id=_plain(settings.s3_access_key_id),
        secret_access_key=_plain(settings.s3_secret_access_key),
    )


def _plain(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None
