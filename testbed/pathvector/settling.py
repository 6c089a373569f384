"""What a fabric's tables come to, with no time passing: as if all had been said that there is to say."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.pathvector.speaker import Speaker


def settle_ribs(speakers: Mapping[str, Speaker], far_ends: Mapping[str, tuple[str, str]]) -> None:
    """Exchanges updates until nobody has news. `far_ends`: interface -> (switch, interface) at the other end of its link.

    BGP with shortest paths and no policy has one outcome, whatever the order of messages.
    """
    news = {switch: set(speaker.rib.local) for switch, speaker in speakers.items()}
    while any(news.values()):
        heard: dict[str, set[str]] = {switch: set() for switch in speakers}
        for switch, addresses in news.items():
            rib = speakers[switch].rib
            _, paths = rib.decide(addresses)
            for ifname in rib.told:
                far_switch, far_ifname = far_ends[ifname]
                for update in rib.tell(ifname, paths):
                    heard[far_switch] |= speakers[far_switch].rib.learn(far_ifname, update)
        news = heard
