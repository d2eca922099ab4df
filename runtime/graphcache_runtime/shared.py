"""What all layers of a model share."""

from dataclasses import dataclass

from graphcache_runtime.calls import Chooser
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.host.arena import Arena
from graphcache_runtime.planning.hotset import Replanning
from graphcache_runtime.planning.measured import CostMeter
from graphcache_runtime.weights.residency import UPLOAD_TIMEOUT_S
from graphcache_runtime.weights.uploader import Uploader


@dataclass(frozen=True)
class Shared:
    """What all layers of a model share."""

    graphs: GraphTable
    chooser: Chooser
    uploader: Uploader
    arena: Arena
    costs: CostMeter
    upload_timeout_s: float = UPLOAD_TIMEOUT_S
    replanning: Replanning | None = None
    keep: bool = False
    """Whether gate_up's product on the device is kept from forward to backward, instead of computed twice."""
