"""Which transmissions a SACK may answer: a receiver names what made it speak, and who has not seen that packet cannot.

A SACK is protected by nothing but its CRC. One that was believed though it is forged would count packets as delivered that are not, and
the transfer would wait for them for ever.
"""

from __future__ import annotations

from array import array

from hosts.mrc.params import MOST_MPR_PACKETS

STAMP_SHIFT = 32  # above the EV's 32 bits
ELDER_LIMIT = 1024  # replaced transmissions remembered
REMEMBERED = MOST_MPR_PACKETS  # PSNs: as many as the widest window of a peer lets be under way
NEVER = (1 << 64) - 1  # of a PSN that was not sent: more bits than any EV and timestamp have


class Sent:
    """EV and timestamp of the newest transmission of each of the last REMEMBERED PSNs, and of some that a newer one replaced."""

    __slots__ = ("_elder", "_newest")

    def __init__(self) -> None:
        self._newest = array("Q", [NEVER]) * REMEMBERED
        self._elder: dict[tuple[int, int], None] = {}  # (PSN, EV and timestamp), oldest first

    def note(self, psn: int, entropy: int, stamp: int, again: bool) -> None:
        """A packet goes out; `again`: not for the first time."""
        slot = psn % REMEMBERED
        if again:
            if len(self._elder) >= ELDER_LIMIT:
                del self._elder[next(iter(self._elder))]
            self._elder[psn, self._newest[slot]] = None
        self._newest[slot] = stamp << STAMP_SHIFT | entropy

    def has(self, psn: int, entropy: int, stamp: int) -> bool:
        """Whether such a transmission was sent, and not too long ago."""
        mark = stamp << STAMP_SHIFT | entropy
        return self._newest[psn % REMEMBERED] == mark or (psn, mark) in self._elder
