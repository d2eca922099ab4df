"""What a device call, an upload and a host expert cost: the numbers behind every choice between device and host."""

from dataclasses import dataclass, replace
from typing import Final

_REFERENCE_H, _REFERENCE_F, _REFERENCE_UPLOAD_BYTES = 2048, 768, 302e6


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one layer's forward. All are compared with each other only, and a backward costs each alike.

    Args:
        call_s: what a device call costs beside its work.
        device_row_s: one padded row through one expert, its transfers included.
        host_expert_s: reading one expert's weights on the host.
        host_row_s: one row through one expert on the host.
        upload_byte_s: one byte of weights to the device.
    """

    call_s: float
    device_row_s: float
    host_expert_s: float
    host_row_s: float
    upload_byte_s: float

    def device_s(self, padded_rows: int) -> float:
        """One call."""
        return self.call_s + padded_rows * self.device_row_s

    def host_s(self, experts: float, rows: float) -> float:
        """So many experts with so many rows among them."""
        return experts * self.host_expert_s + rows * self.host_row_s

    def upload_s(self, size_bytes: int) -> float:
        """The upload of a layer's weights."""
        return size_bytes * self.upload_byte_s


RNGD: Final = Costs(
    call_s=0.010,
    device_row_s=8.2e-6,
    host_expert_s=0.65e-3,
    host_row_s=0.0425e-3,
    upload_byte_s=0.146 / _REFERENCE_UPLOAD_BYTES,
)
"""An RNGD card and its host, H 2048, F 768. One call of 32 experts, 64 rows each: rows to the device 2.6 ms, forward
6.3, rows back 7.8, and 10 ms beside; a layer's 302 MB took 146 ms; the host 0.65 ms an expert and 0.0425 ms a row."""


def rngd_costs(h: int, f: int) -> Costs:
    """The same for other sizes: what depends on the weights' size grows with it."""
    scale = h * f / (_REFERENCE_H * _REFERENCE_F)
    return replace(
        RNGD,
        device_row_s=RNGD.device_row_s * scale,
        host_expert_s=RNGD.host_expert_s * scale,
        host_row_s=RNGD.host_row_s * scale,
    )
