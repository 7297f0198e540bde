# SPDX-License-Identifier: Apache-2.0
"""What is known about a GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["GpuProbe"]


@dataclasses.dataclass(frozen=True)
class GpuProbe:
    """What is known about a GPU, and which limits outside gpushare apply to it. Sizes are in bytes; 0 means no limit."""

    state: str  # "healthy", "busy" (trying later may help), "absent" or "failed"
    reason: str  # why it is not healthy
    ordinal: int
    name: str
    uuid: str
    pci_id: str
    sm_count: int
    compute_capability: tuple[int, int]
    mig: bool  # a MIG instance
    mps: bool  # an MPS server is in use
    mps_percentage: int
    memory_total: int
    memory_free: int
    mps_memory_limit: int
    dmem_limit: int
    memory_promised: int  # the sum of the quotas that this runtime gave out
    guarantees_promised: float  # the sum of the guarantees; a fraction of 1

    @property
    def healthy(self) -> bool:
        return self.state == "healthy"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
