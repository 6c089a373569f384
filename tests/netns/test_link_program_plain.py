"""The link program and MRC without an outer header (`mrc-bgp`): marks and trims as in a tunnel, and RC's packets are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from fabric_lab import ask

from hosts import wire

pytestmark = pytest.mark.netns
IP, UDP = 14, 54
EV = 0xC007


def tell() -> dict[str, Any]:
    """Frames as hexadecimal text. The virtual queue drains 1000 bytes a second, so the machine's speed does not matter."""
    from link_lab import ETHERNET, Lab, mrc, roce

    from hosts import wire

    lab, slow = Lab(), {"rate_bps": 8000}

    def bare(**given: Any) -> bytes:
        """The inner packet of a tunnel, with the traffic class of the outer one, as `hosts.ecmp_network` sends it."""
        framed = mrc(ev=0xC007, **given)
        inner = bytearray(framed[54:])
        inner[0], inner[1] = framed[14], framed[15] & 0xF0 | inner[1] & 0x0F
        return ETHERNET + bytes(inner)

    def sent(*frames: bytes, **parameters: Any) -> dict[str, Any]:
        lab.fresh(0, **parameters)
        return {"in": [frame.hex() for frame in frames], "out": [frame.hex() for frame in lab.send(*frames)], "counts": lab.counts()}

    said: dict[str, Any] = {"healthy": sent(bare(), bare(dscp=46))}
    said["trimmed"] = {str(opcode): sent(bare(opcode=opcode), trim_bytes=1, **slow) for opcode in range(0xC6, 0xCC)}
    said["last_hop"] = sent(bare(), trim_bytes=1, last_hop=True, **slow)
    said["again"] = sent(bare(dscp=8), trim_bytes=1, **slow)
    said["full"] = sent(bare(opcode=wire.SACK, payload=0, dscp=46), bare(dscp=12), trim_bytes=1, limit_bytes=1, **slow)
    said["marked"] = sent(bare(ecn=2), bare(), bare(ecn=2), ecn_max_bytes=1, **slow)
    said["rc"] = sent(*[roce(dscp=0, ecn=2)] * 3, trim_bytes=1, ecn_max_bytes=1, **slow)
    said["rc_off"] = sent(*[roce(dscp=0, ecn=2)] * 3, **slow)
    before = lab.class_packets()["10"]
    lab.fresh(trim_bytes=1, **slow)
    lab.send(bare(), bare(dscp=46))
    said["control_class"] = lab.class_packets()["10"] - before
    said["ev"] = sent(bare(), mrc(ev=0xC007), mrc(ev=0xC008), evs=(0xC007,), ev_loss=1.0)["counts"]
    return said


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell)
    return answer


def frames(story: dict[str, Any], side: str = "out") -> list[bytes]:
    return [bytes.fromhex(text) for text in story[side]]


def traffic_class(frame: bytes) -> int:
    return wire.IPV6.unpack(frame, IP)["traffic_class"]


def test_a_healthy_link_changes_nothing_and_knows_mrc(said: dict[str, Any]) -> None:
    story = said["healthy"]
    assert story["out"] == story["in"]
    assert story["counts"] == {"tx_packets": 2, "tx_bytes": sum(map(len, frames(story)))}  # none of them `other`


@pytest.mark.parametrize("opcode", range(0xC6, 0xCC))
def test_a_trimmed_packet_is_what_the_agents_take_for_one(said: dict[str, Any], opcode: int) -> None:
    story = said["trimmed"][str(opcode)]
    (whole,), (cut,) = frames(story, "in"), frames(story)
    assert cut[IP:] == wire.trimmed(whole[IP:])
    assert wire.UDP.unpack(cut, UDP)["checksum"] == 0
    assert story["counts"]["trimmed_packets"] == 1


def test_the_last_hop_says_so_and_data_sent_again_is_trimmed_too(said: dict[str, Any]) -> None:
    assert traffic_class(frames(said["last_hop"])[0]) >> 2 == wire.DSCP_TRIMMED_LASTHOP
    assert traffic_class(frames(said["again"])[0]) >> 2 == wire.DSCP_TRIMMED


def test_control_and_trimmed_packets_pass_a_full_queue_whole(said: dict[str, Any]) -> None:
    assert said["full"]["out"] == said["full"]["in"]


def test_trimmed_and_control_packets_go_into_the_control_class(said: dict[str, Any]) -> None:
    assert said["control_class"] == 2


def test_a_mark_is_set_where_the_packet_can_tell_and_its_icrc_still_fits(said: dict[str, Any]) -> None:
    out = frames(said["marked"])
    assert [traffic_class(frame) & 3 for frame in out] == [2, 0, 3]  # the first one met no queue
    assert all(frame[-4:] == wire.icrc(frame[IP:-4]) for frame in out)
    assert said["marked"]["counts"]["marked_packets"] == 1


def test_rc_is_never_trimmed_and_nothing_touches_it_where_links_do_not_mark(said: dict[str, Any]) -> None:
    """`rc-bgp` has the DSCP of best effort; its links do not mark unless its own rate control asks for it."""
    assert [len(frame) for frame in frames(said["rc"])] == [len(frame) for frame in frames(said["rc"], "in")]
    assert "trimmed_packets" not in said["rc"]["counts"]
    assert said["rc_off"]["out"] == said["rc_off"]["in"]


def test_the_rule_for_evs_reads_the_packets_own_header(said: dict[str, Any]) -> None:
    assert said["ev"]["ev_dropped_packets"] == 2
    assert said["ev"]["tx_packets"] == 1
