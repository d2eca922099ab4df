"""What all layers of a model share."""

from dataclasses import dataclass, field

from graphcache_runtime.calls import Chooser
from graphcache_runtime.daemon_thread import DaemonThread
from graphcache_runtime.graph_table import GraphTable
from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.gradient_memory import GradientMemory
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
    beside: bool | None = None
    """Whether device calls run while the host does its part; None: where the device is not the host's own CPU."""
    device_thread: DaemonThread = field(default_factory=lambda: DaemonThread("graphcache-device"))
    keep: bool = False
    """Whether gate_up's product on the device is kept from forward to backward, instead of computed twice."""
    gradient_memory: GradientMemory | None = field(default_factory=GradientMemory)
    """Where the gradients of weights lie; None: in fresh memory each time."""
