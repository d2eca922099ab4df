"""VendorEntry: one finished compile in furiosa-torch's own cache folder, packed into one file and unpacked again.

The vendor's compiler looks there before it compiles, for any program that uses it, torch.compile included: a folder
named by 16 hexadecimal digits, with its key (``key.bin``), input, parameters and output. A folder copied from another
machine hits like one made here.
"""

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphcache_wire import GraphKey, Kind

KEY_FILE: Final = "key.bin"
OUTPUT_FILE: Final = "output.bin"
PARAMETERS_FILE: Final = "compile_params.yaml"
INPUT_FILE: Final = "input.fir"
FILES: Final = (KEY_FILE, INPUT_FILE, PARAMETERS_FILE, OUTPUT_FILE)
"""What the vendor reads; drawings for its viewer (``input.ir_viewer.json``) are left out."""
MAX_FILE_BYTES: Final = 2**31
PREFIX: Final = "furiosa-compiler-"
_FOLDER = re.compile(r"[0-9a-f]{16}")
_REVISION = re.compile(r"^compiler_revision: ([0-9A-Za-z._-]{1,64})$", re.MULTILINE)


class BadVendorEntry(ValueError):
    """Files that are no whole entry of the vendor's cache, or not the entry of their key."""


@dataclass(frozen=True, slots=True)
class VendorEntry:
    """A whole entry on this machine. ``compile_s``: between the vendor's first and last write."""

    folder: Path
    key_sha256: str
    revision: str
    compile_s: float

    @property
    def key(self) -> GraphKey:
        """What the service stores it under."""
        return entry_key(self.key_sha256, self.revision)


def default_cache_folder() -> Path:
    """Where the vendor keeps its cache: under XDG_CACHE_HOME, else under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "furiosa" / "compiler"


def entry_key(key_sha256: str, revision: str) -> GraphKey:
    """The key of the entry whose ``key.bin`` has this digest, made by this revision of the vendor's compiler."""
    options = {"mode": "baked", "weights": key_sha256}
    toolchain = f"{PREFIX}{revision}"
    return GraphKey(kind=Kind.VENDOR_ENTRY, e_hot=1, h=1, f=1, bucket=1, toolchain=toolchain, options=options)


def entries(root: Path) -> Iterator[VendorEntry]:
    """The whole entries of a cache folder. One that is still being written, or that failed, is none."""
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if _FOLDER.fullmatch(folder.name) and all((folder / name).is_file() for name in FILES):
            revision = _REVISION.search((folder / PARAMETERS_FILE).read_text(errors="replace"))
            if revision is not None:
                spent_s = (folder / OUTPUT_FILE).stat().st_mtime - (folder / INPUT_FILE).stat().st_mtime
                yield VendorEntry(folder, _sha256(folder / KEY_FILE), revision[1], max(0.0, spent_s))


def pack(entry: VendorEntry, into: Path) -> None:
    """Write the entry as one zip, the same bytes for the same files."""
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as file:
        for name in FILES:
            info = zipfile.ZipInfo(f"{entry.folder.name}/{name}")
            file.writestr(info, (entry.folder / name).read_bytes(), zipfile.ZIP_DEFLATED)


def unpack(packed: Path, key: GraphKey, root: Path) -> Path:
    """Put a packed entry into a cache folder, whole or not at all; returns its folder. Safe to repeat.

    Args:
        packed: a file whose digest and signature were checked before.

    Raises:
        BadVendorEntry: it holds other files than an entry has, or not the entry of ``key``.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = Path(tempfile.mkdtemp(prefix=".graphcache-", dir=root))
    try:
        name = _extract(packed, unfinished)
        _check(unfinished, key)
        target = root / name
        if not target.exists():
            unfinished.rename(target)
        return target
    except (OSError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise BadVendorEntry(f"{key.label()}: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _extract(packed: Path, into: Path) -> str:
    """Write the four files; returns the name of the entry's folder. Names are compared, never used as paths."""
    with zipfile.ZipFile(packed) as file:
        names = {info.filename for info in file.infolist()}
        folder = min(names, default="").partition("/")[0]
        if not _FOLDER.fullmatch(folder) or names != {f"{folder}/{name}" for name in FILES}:
            raise BadVendorEntry(f"{packed} does not hold the {len(FILES)} files of one entry of the vendor's cache")
        for name in FILES:
            with file.open(f"{folder}/{name}") as member:
                data = member.read(MAX_FILE_BYTES + 1)
            if len(data) > MAX_FILE_BYTES:
                raise BadVendorEntry(f"{packed}: {name} is larger than {MAX_FILE_BYTES} bytes")
            (into / name).write_bytes(data)
    return folder


def _check(folder: Path, key: GraphKey) -> None:
    revision = _REVISION.search((folder / PARAMETERS_FILE).read_text(errors="replace"))
    held = entry_key(_sha256(folder / KEY_FILE), revision[1] if revision else "unknown")
    if held != key:
        raise BadVendorEntry(f"asked for {key.label()} of {key.toolchain}, got {held.label()} of {held.toolchain}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
