"""DiskStore: the compiled graphs of one node, shared by all its ranks.

    <root>/v1/blobs/ab/<sha256>       bytes
    <root>/v1/keys/ab/<key digest>    the artifact as JSON, written after its bytes
    <root>/v1/locks/<key digest>      flock: saves work, but nothing rests on it
    <root>/v1/tmp/                    files being written, with unique names

Every read is checked: a broken entry is a miss with a reason, and is removed so that the next write heals it.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from graphcache_client.errors import BadArtifact, StoreUnusable
from graphcache_client.verify import check_file
from graphcache_wire import Artifact

LAYOUT = "v1"
TEMPORARY_AGE_S = 24 * 3600
"""A temporary file older than this belongs to nobody that still lives."""
RECENT_S = 600
"""What was read this lately is not pruned: a process may be about to load it."""
POLL_S = (0.01, 0.25)
"""First and longest pause between two tries for a lock that another process holds."""


class DiskStore:
    """The graphs of one node.

    Args:
        root: made with mode 0700 where it is missing.
        max_bytes: the least recently read blobs go when all together exceed this; None keeps everything.

    Raises:
        StoreUnusable: the folder cannot be made or written, belongs to another user, or others may write to it.
    """

    def __init__(self, root: Path, *, max_bytes: int | None = None) -> None:
        self.root = root.expanduser().absolute()
        self._max_bytes = max_bytes
        self._base = self.root / LAYOUT
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_foreign_folder()
            for part in ("blobs", "keys", "locks", "tmp"):
                (self._base / part).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep_temporary()
        except OSError as error:
            raise StoreUnusable(
                f"cache folder {self.root}: {error.strerror}. Choose another with cache_dir."
            ) from error

    def _refuse_foreign_folder(self) -> None:
        found = self.root.stat()
        if found.st_uid != os.geteuid():
            raise StoreUnusable(f"cache folder {self.root} belongs to user {found.st_uid}: choose one of your own")
        if stat.S_IMODE(found.st_mode) & 0o022:
            raise StoreUnusable(
                f"others may write to the cache folder {self.root}, and its graphs are loaded as code: "
                f"run chmod 700 {self.root}"
            )

    def read(
        self,
        key_digest: str,
        trusted_keys: Iterable[str] | None,
        on_broken: Callable[[str], None] = lambda reason: None,
    ) -> tuple[Path, Artifact] | None:
        """The checked bytes and artifact of a key, or None. A broken entry is removed and its reason told.

        What cannot be read now (no descriptor left, say) is a miss with a reason too, but stays: it may be good.
        """
        entry = self._entry(key_digest)
        try:
            artifact = Artifact.model_validate_json(entry.read_bytes())
            if artifact.key_digest != key_digest:
                raise BadArtifact("bad_digest", f"{entry} is of key {artifact.key_digest}")
            path = self.blob_path(artifact.blob)
            check_file(path, artifact, trusted_keys)
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            on_broken(f"{error}; it is left in place")
            return None
        except (BadArtifact, ValidationError) as error:
            on_broken(f"{error}; it is removed")
            self.forget(key_digest)
            return None
        return path, artifact

    def still_holds(self, artifact: Artifact) -> bool:
        """Whether bytes that were checked before are still here: another process may have pruned or dropped them."""
        try:
            return self.blob_path(artifact.blob).stat().st_size == artifact.size_bytes
        except OSError:
            return False

    def write(self, artifact: Artifact, temporary: Path) -> Path:
        """Take a checked file (made by ``temporary_file``) in as the bytes of an artifact. Whole or not at all.

        Raises:
            StoreUnusable: the disk is full or cannot be written.
        """
        try:
            path = self.blob_path(artifact.blob)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _sync(temporary)
            os.replace(temporary, path)
            _sync(path.parent)
            self._write_entry(artifact)
        except OSError as error:
            raise StoreUnusable(f"cache folder {self.root}: {error.strerror}") from error
        self._prune(keep=artifact.blob)
        return path

    def _write_entry(self, artifact: Artifact) -> None:
        entry = self._entry(artifact.key_digest)
        entry.parent.mkdir(mode=0o700, exist_ok=True)
        with self.temporary_file() as written:
            written.write_text(artifact.model_dump_json())
            _sync(written)
            os.replace(written, entry)
            _sync(entry.parent)

    def forget(self, key_digest: str) -> None:
        """Drop a key and its bytes; another key with the same bytes finds them missing and fetches them again."""
        entry = self._entry(key_digest)
        with contextlib.suppress(OSError, ValidationError):
            blob = Artifact.model_validate_json(entry.read_bytes()).blob
            self.blob_path(blob).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            entry.unlink(missing_ok=True)

    @contextlib.contextmanager
    def temporary_file(self) -> Iterator[Path]:
        """A name inside the store that nobody else uses; what is still there at the end is removed."""
        path = self._base / "tmp" / f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """An empty folder inside the store, removed at the end."""
        path = self._base / "tmp" / f"{os.getpid()}-{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, key_digest: str, deadline: float | None = None) -> Iterator[bool]:
        """Hold the node's lock of a key; yields False where it was not had by ``deadline`` (``time.monotonic``).

        The kernel frees it when its holder dies. Where the file system knows no flock, nobody waits.
        """
        descriptor = os.open(self._base / "locks" / key_digest, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield _flock(descriptor, deadline)
        finally:
            os.close(descriptor)

    def blob_path(self, digest: str) -> Path:
        return self._base / "blobs" / digest[:2] / digest

    def used_bytes(self) -> int:
        return sum(size_bytes for _, size_bytes, _ in self._blobs())

    def _entry(self, key_digest: str) -> Path:
        return self._base / "keys" / key_digest[:2] / key_digest

    def _blobs(self) -> Iterator[tuple[float, int, Path]]:
        for path in (self._base / "blobs").glob("??/*"):
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                yield found.st_mtime, found.st_size, path

    def _prune(self, keep: str) -> None:
        if self._max_bytes is None:
            return
        blobs = sorted(self._blobs())
        over_bytes = sum(size_bytes for _, size_bytes, _ in blobs) - self._max_bytes
        for read_at, size_bytes, path in blobs:
            if over_bytes <= 0 or time.time() - read_at < RECENT_S:
                return
            if path.name != keep:
                path.unlink(missing_ok=True)
                over_bytes -= size_bytes

    def _sweep_temporary(self) -> None:
        for path in (self._base / "tmp").iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > TEMPORARY_AGE_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _flock(descriptor: int, deadline: float | None) -> bool:
    pause_s = POLL_S[0]
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return True
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, POLL_S[1])


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
