"""The link program on a real veth pair: what comes out at the far end, and what is counted, for each outcome.

One lab a module; each story sets its own parameters. Virtual queues here drain 1000 bytes a second, so the machine's speed does not matter.
"""

from __future__ import annotations

from typing import Any

import pytest
from fabric_lab import ask

from hosts import wire

pytestmark = pytest.mark.netns
OUTER, INNER, UDP = 14, 54, 94
DATA_FRAME_BYTES = 1166  # of mrc()
TRIMMED_FRAME_BYTES = 138


def tell() -> dict[str, Any]:
    """All stories, one after the other; frames as hexadecimal text."""
    import subprocess
    import time

    from link_lab import Lab, mrc, plain, roce

    from hosts import wire
    from testbed.fabric import link_parameters

    lab = Lab()
    said: dict[str, Any] = {}
    slow = {"rate_bps": 8000}

    def sent(*frames: bytes, seed: int = 0, **parameters: Any) -> dict[str, Any]:
        lab.fresh(seed, **parameters)
        return {"in": [frame.hex() for frame in frames], "out": [frame.hex() for frame in lab.send(*frames)], "counts": lab.counts()}

    said["healthy"] = sent(mrc(), roce(), plain(6))
    said["trimmed"] = {
        f"{opcode:#x} {stamped}": sent(mrc(opcode=opcode, stamped=stamped), trim_bytes=1, **slow)
        for opcode in range(0xC6, 0xCC)
        for stamped in (True, False)
    }
    said["trimmed_roce"] = {f"{opcode:#x}": sent(roce(opcode=opcode), trim_bytes=1, **slow) for opcode in range(0x06, 0x0C)}
    said["last_hop"] = sent(mrc(ecn=1), roce(), trim_bytes=1, last_hop=True, **slow)
    said["retransmission"] = sent(mrc(dscp=8), trim_bytes=1, **slow)
    said["ect_trimmed"] = sent(mrc(ecn=1), trim_bytes=1, ecn_min_bytes=0, ecn_max_bytes=1, **slow)
    said["threshold"] = sent(*[mrc() for _ in range(20)], trim_bytes=10 * 1166, limit_bytes=10 * 1166, **slow)
    full = {"trim_bytes": 1, "limit_bytes": 1, **slow}
    said["threshold_busy_s"] = int(lab.row["free_at_ns"]) / 1e9 - time.monotonic()
    said["other_port"] = sent(mrc()[:96] + (4971).to_bytes(2, "big") + mrc()[98:], trim_bytes=1, **slow)
    said["cut_short"] = sent(mrc()[:120], trim_bytes=1, **slow)
    said["not_trimmable"] = {
        name: sent(frame, **full)
        for name, frame in {
            "no_trim": mrc(dscp=0),
            "sack_in_data_class": mrc(opcode=wire.SACK, payload=0),
            "control": mrc(dscp=46),
            "trimmed": mrc(dscp=12),
            "trimmed_lasthop": mrc(dscp=16),
            "routing": plain(6, dscp=48),
            "other": plain(6),
        }.items()
    }
    said["no_limit"] = sent(mrc(dscp=0), trim_bytes=1, **slow)
    said["without_virtual_queue"] = sent(mrc(ecn=1), trim_bytes=1, limit_bytes=1, ecn_max_bytes=1)
    said["room"] = sent(*[mrc(dscp=0) for _ in range(10)], mrc(), room_bytes=3 * 1166, trim_bytes=4 * 1166, **slow)
    said["control_takes_time"] = sent(*[mrc(dscp=46) for _ in range(5)], mrc(), trim_bytes=5 * 1166, **slow)
    said["control_beyond_room"] = sent(mrc(), *[mrc(dscp=46) for _ in range(5)], mrc(), room_bytes=1166, trim_bytes=4 * 1166, **slow)
    classes = lab.class_packets()
    lab.fresh(trim_bytes=1, **slow)
    charged = lab.class_bytes()["10"]
    lab.send(mrc(), mrc(dscp=8))
    said["class_of_trimmed"] = lab.class_packets()["10"] - classes["10"]
    said["charged_for_trimmed"] = lab.class_bytes()["10"] - charged
    lab.fresh()
    lab.send(mrc(dscp=12), mrc(dscp=16), mrc(dscp=4), mrc(dscp=0))
    said["class_at_next_hop"] = lab.class_packets()["10"] - classes["10"] - 2

    marking = {"ecn_max_bytes": 1, **slow}
    said["marked"] = sent(mrc(ecn=1), mrc(), mrc(ecn=1), mrc(ecn=2), mrc(ecn=3), roce(ecn=2), **marking)
    said["not_marked_at_last_hop"] = sent(mrc(ecn=1), mrc(ecn=1), last_hop=True, **marking)
    small = [mrc(payload=0, ecn=1) for _ in range(400)]
    ramp = {"ecn_min_bytes": 100 * 142, "ecn_max_bytes": 500 * 142, **slow}
    said["ramp"] = [[frame[15] >> 4 & 3 == 3 for frame in map(bytes.fromhex, sent(*small, seed=seed, **ramp)["out"])] for seed in (5, 5, 6)]
    said["ramp_draws"] = link_parameters.draws(link_parameters.state_of(5, lab.number, "mark"), 400)

    numbered = [mrc(payload=0, ev=number) for number in range(1000)]
    losses = [sent(*numbered, seed=seed, loss=0.2) for seed in (7, 7, 8)]
    said["loss"] = [{"kept": [int(text[188:192], 16) for text in story["out"]], "counts": story["counts"]} for story in losses]
    said["loss_draws"] = link_parameters.draws(link_parameters.state_of(7, lab.number, "loss"), 1000)
    said["certain_loss"] = sent(*numbered[:50], loss=1.0)["counts"]
    eight = tuple(range(0x10000, 0x10008))
    said["ev"] = sent(*[mrc(ev=ev) for ev in (*eight, 0x20000, 0x30001)], roce(ev=0x10003), roce(ev=3), evs=eight, ev_loss=1.0)
    said["ev_zero"] = sent(mrc(ev=0), evs=(1,), ev_loss=1.0)
    some = sent(*[mrc(payload=0, ev=1)] * 200, seed=3, evs=(1,), ev_loss=0.5)
    said["ev_share"] = [some["counts"]["tx_packets"], link_parameters.draws(link_parameters.state_of(3, lab.number, "ev"), 200)]
    discovery = [plain(58, body=bytes([kind]) + bytes(31)) for kind in (135, 136, 128, 143)]
    said["hung"] = sent(mrc(), mrc(dscp=46), plain(6), plain(6, dscp=48), *discovery, drop_data=True)
    said["silent"] = sent(mrc(), plain(6, dscp=48), drop_all=True)

    lab.b.send(mrc())
    said["one_way"] = {"back": lab.a.recv(9000) is not None and int(lab.other_row["tx_packets"])}
    before = lab.tc_state()
    lab.fresh()
    flow = [lab.send(*[mrc()] * 5)]
    link_parameters.change(lab.row, loss=1.0)
    flow.append(lab.send(*[mrc()] * 5))
    link_parameters.change(lab.row, loss=0.0, trim_bytes=1, rate_bps=8000)
    flow.append(lab.send(*[mrc()] * 5))
    said["changed"] = {"sizes": [[len(frame) for frame in part] for part in flow], "tc_same": lab.tc_state() == before}
    said["first_drop_noted"] = 0 < int(lab.row["first_drop_ns"]) <= int(lab.row["last_drop_ns"])
    lab.fresh(trim_bytes=2000, **slow)
    now_ns = time.monotonic_ns()
    lab.send(mrc())
    said["busy_s"] = [(int(lab.row["free_at_ns"]) - moment) / 1e9 for moment in (now_ns, time.monotonic_ns())]
    lab.row["free_at_ns"] = time.monotonic_ns() + 10**9
    said["size_after"] = {"busy": len(lab.send(mrc())[0])}
    lab.row["free_at_ns"] = time.monotonic_ns()
    said["size_after"]["free"] = len(lab.send(mrc())[0])
    subprocess.run(["tc", "filter", "del", "dev", lab.link.a.ifname, "parent", "1:"], check=True)
    classes = lab.class_packets()
    lab.fresh(trim_bytes=1, **slow)
    lab.send(mrc())
    said["class_without_rules"] = lab.class_packets()["10"] - classes["10"]
    return said


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell)
    return answer


def frames(story: dict[str, Any], side: str = "out") -> list[bytes]:
    return [bytes.fromhex(text) for text in story[side]]


def ip(frame: bytes, offset: int = OUTER) -> dict[str, int]:
    return wire.IPV6.unpack(frame, offset)


def classes_of(frame: bytes) -> tuple[int, int]:
    """(DSCP, ECN) of the outer header."""
    both = ip(frame)["traffic_class"]
    return both >> 2, both & 3


def test_a_healthy_link_changes_nothing_and_counts_all(said: dict[str, Any]) -> None:
    story = said["healthy"]
    assert story["out"] == story["in"]
    size = sum(map(len, frames(story)))
    assert story["counts"] == {"tx_packets": 3, "tx_bytes": size, "other_packets": 1, "other_bytes": len(frames(story)[2])}


WRITES = [f"{opcode:#x} {stamped}" for opcode in range(0xC6, 0xCC) for stamped in (True, False)]


@pytest.mark.parametrize("case", WRITES)
def test_a_trimmed_packet_keeps_its_mrc_headers_and_nothing_else(said: dict[str, Any], case: str) -> None:
    (before,), (after,) = frames(said["trimmed"][case], "in"), frames(said["trimmed"][case])
    opcode, stamped = case.split()
    headers = wire.headers_of(int(opcode, 16), stamped == "True")
    end = UDP + wire.UDP.size_bytes + wire.BTH.size_bytes + sum(header.size_bytes for header in headers)
    assert after[UDP + wire.UDP.size_bytes :] == before[UDP + wire.UDP.size_bytes : end]


@pytest.mark.parametrize("case", WRITES)
def test_the_lengths_of_a_trimmed_packet_are_right(said: dict[str, Any], case: str) -> None:
    (after,) = frames(said["trimmed"][case])
    lengths = [ip(after)["payload_length"], ip(after, INNER)["payload_length"], wire.UDP.unpack(after, UDP)["length"]]
    assert lengths == [len(after) - OUTER - 40, len(after) - INNER - 40, len(after) - UDP]


@pytest.mark.parametrize("case", WRITES)
def test_trimming_changes_dscp_and_lengths_of_the_ip_headers_only(said: dict[str, Any], case: str) -> None:
    (before,), (after,) = frames(said["trimmed"][case], "in"), frames(said["trimmed"][case])
    for offset in (OUTER, INNER):
        expected = {**ip(before, offset), "traffic_class": 12 << 2, "payload_length": len(after) - offset - 40}
        assert ip(after, offset) == expected


@pytest.mark.parametrize("opcode", [f"{opcode:#x}" for opcode in range(0x06, 0x0C)])
def test_a_trimmed_rocev2_packet_has_a_right_udp_checksum(said: dict[str, Any], opcode: str) -> None:
    from link_lab import ones_complement

    (after,) = frames(said["trimmed_roce"][opcode])
    udp = after[INNER:]
    assert ones_complement(after[22:54] + len(udp).to_bytes(4, "big") + (17).to_bytes(4, "big") + udp) == 0


@pytest.mark.parametrize(("opcode", "extra"), [("0x6", 16), ("0x7", 0), ("0x8", 0), ("0x9", 4), ("0xa", 16), ("0xb", 20)])
def test_a_trimmed_rocev2_packet_keeps_its_headers(said: dict[str, Any], opcode: str, extra: int) -> None:
    (before,), (after,) = frames(said["trimmed_roce"][opcode], "in"), frames(said["trimmed_roce"][opcode])
    assert after[INNER + 8 :] == before[INNER + 8 : INNER + 8 + 12 + extra]
    assert (ip(after)["payload_length"], wire.UDP.unpack(after, INNER)["length"]) == (len(after) - INNER,) * 2


def test_at_the_last_hop_trimmed_packets_say_so(said: dict[str, Any]) -> None:
    assert [classes_of(frame)[0] for frame in frames(said["last_hop"])] == [16, 16]
    assert ip(frames(said["last_hop"])[0], INNER)["traffic_class"] >> 2 == 16


def test_a_retransmission_can_be_trimmed(said: dict[str, Any]) -> None:
    assert len(frames(said["retransmission"])[0]) == TRIMMED_FRAME_BYTES


def test_a_trimmed_packet_keeps_its_ecn_bits(said: dict[str, Any]) -> None:
    assert classes_of(frames(said["ect_trimmed"])[0]) == (12, 1)


def test_packets_are_trimmed_when_they_would_exceed_the_threshold(said: dict[str, Any]) -> None:
    sizes = [len(frame) for frame in frames(said["threshold"])]
    assert sizes == [DATA_FRAME_BYTES] * 10 + [TRIMMED_FRAME_BYTES] * 10


def test_bytes_sent_and_bytes_cut_are_the_bytes_offered(said: dict[str, Any]) -> None:
    counts = said["threshold"]["counts"]
    assert counts["trimmed_packets"] == 10
    assert counts["tx_bytes"] + counts["trimmed_bytes"] == 20 * DATA_FRAME_BYTES


def test_a_trimmed_packet_takes_only_its_own_time(said: dict[str, Any]) -> None:
    assert said["threshold_busy_s"] <= 10 * (DATA_FRAME_BYTES + TRIMMED_FRAME_BYTES) / 1000


def test_the_other_udp_port_of_the_specification_is_known(said: dict[str, Any]) -> None:
    assert len(frames(said["other_port"])[0]) == TRIMMED_FRAME_BYTES


def test_a_packet_shorter_than_its_headers_is_not_made_longer(said: dict[str, Any]) -> None:
    assert said["cut_short"]["out"] == said["cut_short"]["in"]


@pytest.mark.parametrize("name", ["no_trim", "sack_in_data_class"])
def test_data_that_cannot_be_trimmed_is_dropped_above_the_limit(said: dict[str, Any], name: str) -> None:
    story = said["not_trimmable"][name]
    assert story["counts"] == {"queue_dropped_packets": 1, "queue_dropped_bytes": len(frames(story, "in")[0])}


@pytest.mark.parametrize("name", ["control", "trimmed", "trimmed_lasthop", "routing", "other"])
def test_control_and_other_packets_pass_a_full_queue(said: dict[str, Any], name: str) -> None:
    assert said["not_trimmable"][name]["out"] == said["not_trimmable"][name]["in"]


def test_without_a_limit_the_real_queue_decides(said: dict[str, Any]) -> None:
    assert said["no_limit"]["out"] == said["no_limit"]["in"]


def test_without_a_rate_nothing_is_marked_or_trimmed(said: dict[str, Any]) -> None:
    assert said["without_virtual_queue"]["out"] == said["without_virtual_queue"]["in"]


def test_what_the_real_queue_will_drop_does_not_fill_the_virtual_one(said: dict[str, Any]) -> None:
    assert len(frames(said["room"])[-1]) == DATA_FRAME_BYTES


def test_control_takes_time_of_the_link(said: dict[str, Any]) -> None:
    assert len(frames(said["control_takes_time"])[-1]) == TRIMMED_FRAME_BYTES


def test_control_takes_time_whatever_the_data_queue_can_hold(said: dict[str, Any]) -> None:
    assert len(frames(said["control_beyond_room"])[-1]) == TRIMMED_FRAME_BYTES


def test_trimmed_packets_go_into_the_control_class(said: dict[str, Any]) -> None:
    assert said["class_of_trimmed"] == 2


def test_htb_charges_trimmed_packets_for_what_is_left(said: dict[str, Any]) -> None:
    assert said["charged_for_trimmed"] == 2 * TRIMMED_FRAME_BYTES


def test_the_program_itself_names_the_control_class(said: dict[str, Any]) -> None:
    assert said["class_without_rules"] == 1


def test_at_later_hops_trimmed_packets_are_control_by_their_dscp(said: dict[str, Any]) -> None:
    assert said["class_at_next_hop"] == 2


def test_only_packets_that_can_tell_are_marked(said: dict[str, Any]) -> None:
    assert [classes_of(frame)[1] for frame in frames(said["marked"])] == [1, 0, 3, 3, 3, 3]
    assert said["marked"]["counts"]["marked_packets"] == 3


def test_a_mark_is_in_the_inner_header_too(said: dict[str, Any]) -> None:
    assert [ip(frame, INNER)["traffic_class"] & 3 for frame in frames(said["marked"])[:4]] == [0, 0, 3, 3]


def test_a_mark_changes_nothing_else_so_the_icrc_still_fits(said: dict[str, Any]) -> None:
    before, after = frames(said["marked"], "in")[2], frames(said["marked"])[2]
    assert wire.icrc(after[INNER:-4]) == after[-4:]
    assert after[INNER + 2 :] == before[INNER + 2 :]


def test_the_last_hop_does_not_mark(said: dict[str, Any]) -> None:
    assert said["not_marked_at_last_hop"]["out"] == said["not_marked_at_last_hop"]["in"]


def test_the_share_of_marks_follows_the_ramp(said: dict[str, Any]) -> None:
    expected = [number < place / 400 * 2**32 for place, number in enumerate(said["ramp_draws"][:299], 1)]
    assert not any(said["ramp"][0][:101])
    differences = sum(marked != is_ for marked, is_ in zip(expected, said["ramp"][0][101:], strict=True))
    assert differences <= 2  # the queue drains a few bytes meanwhile
    assert sum(expected) > 50


def test_a_seed_repeats_the_marks_and_another_does_not(said: dict[str, Any]) -> None:
    first, again, other = said["ramp"]
    assert sum(a != b for a, b in zip(first, again, strict=True)) <= 2
    assert sum(a != b for a, b in zip(first, other, strict=True)) > 20


def test_losses_are_exactly_those_of_the_seed(said: dict[str, Any]) -> None:
    kept = [number for number, drawn in enumerate(said["loss_draws"]) if drawn >= round(0.2 * 2**32)]
    assert said["loss"][0]["kept"] == kept


def test_a_seed_repeats_the_losses_and_another_does_not(said: dict[str, Any]) -> None:
    first, again, other = (story["kept"] for story in said["loss"])
    assert first == again
    assert first != other


def test_losses_are_counted_apart(said: dict[str, Any]) -> None:
    counts = said["loss"][0]["counts"]
    assert counts["lost_packets"] == 1000 - len(said["loss"][0]["kept"])
    assert "dropped_packets" not in counts


def test_a_loss_of_one_is_certain(said: dict[str, Any]) -> None:
    assert said["certain_loss"] == {"lost_packets": 50, "lost_bytes": 50 * 142}


def test_only_packets_of_the_given_evs_are_dropped_in_a_tunnel_or_not(said: dict[str, Any]) -> None:
    story = said["ev"]
    assert story["out"] == [story["in"][8], story["in"][9], story["in"][11]]
    assert story["counts"]["ev_dropped_packets"] == 9


def test_an_ev_of_zero_is_not_listed_by_an_unused_place(said: dict[str, Any]) -> None:
    assert said["ev_zero"]["out"] == said["ev_zero"]["in"]


def test_the_ev_rule_has_a_share_of_its_own(said: dict[str, Any]) -> None:
    kept, drawn = said["ev_share"]
    assert kept == sum(number >= 2**31 for number in drawn)


def test_a_hung_switch_forwards_routing_and_discovery_only(said: dict[str, Any]) -> None:
    story = said["hung"]
    assert story["out"] == story["in"][3:6]
    assert story["counts"]["dropped_packets"] == 5


def test_a_silent_link_takes_everything(said: dict[str, Any]) -> None:
    assert said["silent"]["out"] == []
    assert said["silent"]["counts"]["dropped_packets"] == 2


def test_the_other_direction_has_a_row_of_its_own(said: dict[str, Any]) -> None:
    assert said["one_way"]["back"] == 1


def test_parameters_change_while_packets_flow(said: dict[str, Any]) -> None:
    assert said["changed"]["sizes"] == [[DATA_FRAME_BYTES] * 5, [], [TRIMMED_FRAME_BYTES] * 5]


def test_changing_parameters_leaves_the_qdiscs_alone(said: dict[str, Any]) -> None:
    assert said["changed"]["tc_same"] is True


def test_losses_by_chance_have_a_first_and_last_time(said: dict[str, Any]) -> None:
    assert said["first_drop_noted"] is True


def test_a_packet_occupies_the_link_for_its_size_over_the_rate(said: dict[str, Any]) -> None:
    most, least = said["busy_s"]
    assert least <= DATA_FRAME_BYTES / 1000 <= most


def test_the_virtual_queue_empties_with_time(said: dict[str, Any]) -> None:
    assert said["size_after"] == {"busy": TRIMMED_FRAME_BYTES, "free": DATA_FRAME_BYTES}
