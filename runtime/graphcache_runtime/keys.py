"""ExpertKeys: from a layer's shapes to the keys of its graphs. One a (kind, slots, H, F, bucket), not an expert."""

from dataclasses import dataclass

import torch

from graphcache_runtime.experts import dtype_name
from graphcache_wire import GraphKey, Kind


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    """The parts that all keys of a layer share."""

    toolchain: str
    h: int
    f: int
    dtype: torch.dtype

    def key(self, kind: Kind, slots: int, bucket: int, *, keep: bool = False) -> GraphKey:
        """The graph of ``kind`` for ``slots`` hot experts and ``bucket`` rows each.

        ``keep``: gate_up's product goes from forward to backward.
        """
        return GraphKey(
            kind=kind,
            e_hot=slots,
            h=self.h,
            f=self.f,
            bucket=bucket,
            toolchain=self.toolchain,
            options={"dtype": dtype_name(self.dtype)} | ({"keep": "gate_up"} if keep else {}),
        )
