"""A Write-with-Immediate on its way into packets."""

from __future__ import annotations

from hosts import wire
from hosts.mrc.loss import Packet


class Message:
    """One Write-with-Immediate and how far it was cut into packets."""

    __slots__ = ("data", "imm", "msn", "offset", "va")

    def __init__(self, data: memoryview, va: int, imm: int, msn: int) -> None:
        self.data, self.va, self.imm, self.msn, self.offset = data, va, imm, msn, 0

    def cut(self, psn: int, size_bytes: int) -> Packet:
        """The next packet."""
        start, total = self.offset, len(self.data)
        end = min(start + size_bytes, total)
        self.offset = end
        last = end == total
        if start == 0:
            opcode = wire.WRITE_ONLY_IMM if last else wire.WRITE_FIRST
        else:
            opcode = wire.WRITE_LAST_IMM if last else wire.WRITE_MIDDLE
        return Packet(psn, opcode, (self.msn, self.msn), self.va + start, self.data[start:end], self.imm if last else None)
