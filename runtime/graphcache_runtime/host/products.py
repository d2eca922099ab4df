"""Products: the C++ of ``native``, compiled once a machine for its own CPU, and loaded.

Legend: C rows sorted by expert, E experts. Where there is no C++ compiler, or no x86-64 CPU with AVX2, torch's own
products are used.
"""

import ctypes
import functools
import hashlib
import logging
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from graphcache_runtime.routing import HostRows
from graphcache_runtime.toolchains.cpu import cpu_features, lacking

log = logging.getLogger(__name__)

SOURCES: Final = Path(__file__).parent / "native"
FLAGS: Final = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread")
COMPILE_TIMEOUT_S: Final = 300
"""It takes 3 s of CPU time; a machine under load may need many times that."""

Arithmetic = Literal["fp32", "widened", "pairs"]
"""Of weights in fp32; of bf16 weights that are widened to fp32 between fp32 rows; in bf16, where the CPU has it."""


class _Span(ctypes.Structure):
    _fields_ = (("expert", ctypes.c_int64), ("first", ctypes.c_int64), ("rows", ctypes.c_int64))


class _Rows(ctypes.Structure):
    _fields_ = (("memory", ctypes.c_void_p), ("stride", ctypes.c_int64))


class _Matrices(ctypes.Structure):
    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("expert_stride", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("height", ctypes.c_int64),
        ("width", ctypes.c_int64),
    )


class ProductsMissing(Exception):
    """The products cannot be compiled or loaded here; says why."""


class Products:
    """Products of sorted rows with stacked matrices ``[E, N, K]``, whose last dimension is dense; nothing is copied.

    Runs on ``torch.get_num_threads()`` threads; what comes out does not depend on their number.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def has(self, arithmetic: Arithmetic) -> bool:
        """Whether this CPU computes so."""
        return hasattr(self._library, f"times_{arithmetic}")

    def times_transposed(self, how: Arithmetic, x_CK: Tensor, rows: HostRows, matrices: Tensor, out_CN: Tensor) -> None:
        """``out = x @ matrix^T``."""
        self._run("times_transposed", how, rows, _rows(x_CK), _matrices(matrices), _rows(out_CN))

    def times(self, how: Arithmetic, x_CN: Tensor, rows: HostRows, matrices: Tensor, out_CK: Tensor) -> None:
        """``out = x @ matrix``."""
        self._run("times", how, rows, _rows(x_CN), _matrices(matrices), _rows(out_CK))

    def outer_products(
        self, how: Arithmetic, left_CN: Tensor, right_CK: Tensor, rows: HostRows, out: Tensor, add: Sequence[bool]
    ) -> None:
        """``out[expert] = left^T @ right`` of its rows, or added to it where ``add`` of that expert says so."""
        flags = (ctypes.c_uint8 * len(add))(*add)
        self._run("outer_products", how, rows, _rows(left_CN), _rows(right_CK), _matrices(out), flags)

    def _run(self, product: str, how: Arithmetic, rows: HostRows, *arguments: object) -> None:
        spans = _spans(rows)
        run = getattr(self._library, f"{product}_{how}")
        run(torch.get_num_threads(), spans, ctypes.c_int64(len(spans)), *arguments)


def _spans(rows: HostRows) -> ctypes.Array[_Span]:
    """Raises ValueError where the counts do not add up to the rows: memory of others would be read."""
    spans, first = (_Span * len(rows.experts))(), 0
    for span, expert, count in zip(spans, rows.experts, rows.counts, strict=True):
        span.expert, span.first, span.rows = expert, first, count
        first += count
    if first != rows.rows:
        raise ValueError(f"{rows.rows} host rows, but the experts' counts add up to {first}")
    return spans


def _rows(rows: Tensor) -> _Rows:
    return _Rows(rows.data_ptr(), rows.stride(0))


def _matrices(matrices: Tensor) -> _Matrices:
    expert_stride, stride, _ = matrices.stride()
    return _Matrices(matrices.data_ptr(), expert_stride, stride, *matrices.shape[1:])


@functools.cache
def compiled_products() -> Products | None:
    """Those of this machine, compiled at the first call of any process here; None, and one line in the log, without."""
    try:
        return load_products(cache_folder())
    except ProductsMissing as missing:
        log.warning("cold experts run through torch's own products: %s", missing)
        return None


def cache_folder() -> Path:
    """Under XDG_CACHE_HOME, else under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphcache" / "host"


def load_products(folder: Path) -> Products:
    """From ``folder``, compiled into it if they are not there. Safe to call from many processes at once.

    Raises:
        ProductsMissing: no AVX2, no compiler, or one that refuses the code; with its message.
    """
    if lacks := lacking("x86-64-v3", cpu_features()):
        raise ProductsMissing(f"this CPU lacks {', '.join(lacks)}")
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise ProductsMissing("no C++ compiler on PATH: install g++ (Debian: apt-get install g++), or set CXX")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_foreign(folder)
        library = folder / f"{_digest(compiler)}.so"
        if not library.exists():
            _compile(compiler, library)
        return Products(library)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise ProductsMissing(f"{compiler} made nothing of {SOURCES} that loads: {str(said)[-1000:]}") from error


def _refuse_foreign(folder: Path) -> None:
    """What lies there is loaded as code, so nobody else may write to it."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise ProductsMissing(f"others may write to {folder}, and code is loaded from it: chmod 700, or XDG_CACHE_HOME")


def _digest(compiler: str) -> str:
    """Of all that the library depends on: a home directory may be shared by nodes with other CPUs."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(version + " ".join([*FLAGS, *sorted(cpu_features())]).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _compile(compiler: str, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        command = [compiler, *FLAGS, str(SOURCES / "products.cpp"), "-o", str(made)]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMPILE_TIMEOUT_S)
        made.replace(library)
