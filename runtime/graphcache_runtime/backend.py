"""GraphBackend: one expert's rows through compiled graphs, in inputs or in baked mode, chunked by the ladder."""

import hashlib
from typing import Literal

import torch
from torch import Tensor

from graphcache_runtime.experts import dtype_name
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.ladder import Chunk, Ladder
from graphcache_runtime.toolchains.base import Weights
from graphcache_wire import GraphKey, Kind


def weights_digest(weights: Weights) -> str:
    """sha256 over dtype, shapes and bytes of both weights: what a baked graph's key says of its constants."""
    digest = hashlib.sha256()
    for tensor in (weights.gate_up, weights.down):
        whole = tensor.detach().cpu().contiguous()
        digest.update(f"{dtype_name(whole.dtype)}{tuple(whole.shape)}".encode())
        digest.update(whole.view(torch.uint8).numpy().data)
    return digest.hexdigest()


class GraphBackend:
    """Runs single experts of one layer: ``gate_up[E, 2F, H]`` (gate first) and ``down[E, H, F]``.

    In inputs mode one graph a bucket serves all experts; in baked mode each expert has its own, so a frozen model only:
    weights that change afterwards are not seen.
    """

    def __init__(
        self,
        graphs: GraphTable,
        toolchain: str,
        gate_up: Tensor,
        down: Tensor,
        ladder: Ladder,
        mode: Literal["inputs", "baked"] = "inputs",
    ) -> None:
        self._graphs, self._toolchain, self._ladder, self._mode = graphs, toolchain, ladder, mode
        self._gate_up, self._down = gate_up.detach(), down.detach()
        self._digests: dict[int, str] = {}

    def run(self, x_TH: Tensor, expert: int) -> Tensor:
        """``[T, H] -> [T, H]``; rows are independent, so chunks change nothing. T = 0 runs nothing.

        Raises:
            IndexError: there is no such expert.
        """
        experts = self._gate_up.shape[0]
        if not 0 <= expert < experts:
            raise IndexError(f"there is no expert {expert}: the layer has 0 to {experts - 1}")
        y_TH = torch.empty_like(x_TH)
        for chunk in self._ladder.chunks(x_TH.shape[0]):
            y_TH[chunk.start : chunk.start + chunk.rows] = self._run_chunk(x_TH, expert, chunk)
        return y_TH

    def _run_chunk(self, x_TH: Tensor, expert: int, chunk: Chunk) -> Tensor:
        weights = Weights(self._gate_up[expert : expert + 1], self._down[expert : expert + 1])
        x = torch.zeros(1, chunk.bucket, x_TH.shape[1], dtype=self._gate_up.dtype)
        x[0, : chunk.rows] = x_TH[chunk.start : chunk.start + chunk.rows]
        key = self._key(expert, weights, chunk.bucket)
        if self._mode == "baked":
            graph = self._graphs.get(key, weights)
            (y,) = graph(x.to(graph.device))
        else:
            graph = self._graphs.get(key)
            (y,) = graph(*(tensor.to(graph.device) for tensor in (x, weights.gate_up, weights.down)))
        return y[0, : chunk.rows].to(x_TH)

    def _key(self, expert: int, weights: Weights, bucket: int) -> GraphKey:
        options = {"dtype": dtype_name(self._gate_up.dtype), "mode": self._mode}
        if self._mode == "baked":
            if expert not in self._digests:
                self._digests[expert] = weights_digest(weights)
            options["weights"] = self._digests[expert]
        _, h, f = weights.down.shape
        return GraphKey(
            kind=Kind.EXPERTS_FORWARD, e_hot=1, h=h, f=f, bucket=bucket, toolchain=self._toolchain, options=options
        )
