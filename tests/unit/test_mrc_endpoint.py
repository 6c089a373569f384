"""Endpoint packets and ports in SACKs: who learns of a dead port, what stale, forged and reordered news can do, the end of all ports."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mrc_lab import on_wire, opcode_of, states

from hosts import wire
from hosts.core import Transmit
from hosts.mrc import MrcCore, MrcParams
from hosts.mrc.channel import Channel, Conditions, Host, peer_spec
from hosts.mrc.endpoint import UPDATES_A_S, UPDATES_AT_ONCE, WINDOW
from hosts.mrc.frames import EndpointFields, Framer, parse_endpoint, parse_sack

NOW = 50.0
PORTS = 4
BYTES = 1 << 18
A, B = "fd00::a", "fd00::b"
REQUEST, RESPONSE = wire.ENDPOINT_REQUEST, wire.ENDPOINT_RESPONSE


class Two:
    """a writes to b over `PORTS` ports, one path each; packets are carried by hand. b's attributes are taken before `down` go down."""

    def __init__(self, connect: bool = True, down_at_b: Iterable[int] = (), **params: float) -> None:
        settings = MrcParams.from_mapping({"idle_probes": 0, "cwnd_initial_packets": 0, "initial_psn": 1000, **params})
        self.region = bytearray(BYTES)
        specs = {name: peer_spec(name, address, PORTS, PORTS) for name, address in (("a", A), ("b", B))}
        self.a = MrcCore("a", A, settings, {"b": specs["b"]}, {}, memoryview(bytearray(0)), 1)
        self.b = MrcCore("b", B, settings, {}, {"a": specs["a"]}, memoryview(self.region), 1)
        for port in down_at_b:
            self.b.on_port(NOW, port, False)
        self.attributes = {"a": self.a.attributes(), "b": self.b.attributes()}
        if connect:
            self.a.connect({"b": self.attributes["b"]})
            self.b.connect({"a": self.attributes["a"]})
        self.framer = Framer(B, A, wire.ENDPOINT_QPN, wire.ENDPOINT_QPN, wire.UDP_PORT)

    def port(self, name: str, port: int, up: bool, now: float = NOW) -> list[Transmit]:
        """A port goes down or up; what its host sends about it."""
        core = self.core(name)
        core.on_port(now, port, up)
        return [each for each in core.transmit(now) if opcode_of(each) == REQUEST]

    def core(self, name: str) -> MrcCore:
        return self.a if name == "a" else self.b

    def give(self, name: str, *packets: Transmit | bytes, now: float = NOW) -> list[Transmit]:
        """Delivers packets to a host; all that it sends then."""
        core = self.core(name)
        for packet in packets:
            core.on_datagram(now, 0, memoryview(packet if isinstance(packet, bytes) else on_wire(packet)))
        core.on_receive_done(now)
        return list(core.transmit(now))

    def drops(self, name: str) -> dict[str, int]:
        return dict(self.core(name).report()["drops"])

    def forged(self, mask: int, ahead: int = 0, entropy: int = 0, op: int = wire.PORT_STATUS_UPDATE, opcode: int = REQUEST) -> bytes:
        """A packet to a as b would send it, `ahead` of its first number."""
        number = self.attributes["b"]["endpoint_psn"] + ahead & wire.PSN_MASK
        header, trailer = self.framer.endpoint(entropy, opcode, EndpointFields(number, op, mask, 0))
        return bytes(header) + trailer

    def events(self, name: str, kind: str) -> list[dict[str, object]]:
        return [dict(event.fields) for event in self.core(name).take_events() if event.event == kind]


def bad(two: Two) -> list[int]:
    """EVs of a that are out of use."""
    return [at for at, state in enumerate(states(two.a)) if state == "ASSUMED_BAD"]


def say(transmit: Transmit) -> EndpointFields:
    return parse_endpoint(memoryview(on_wire(transmit)), opcode_of(transmit) == RESPONSE)


# Telling


def test_a_dead_port_is_told_over_a_few_evs_of_other_ports_in_the_control_class() -> None:
    sent = Two(port_update_evs=2).port("b", 1, False)
    assert len(sent) == 2
    assert len({each.port for each in sent}) == 2
    assert 1 not in {each.port for each in sent}
    assert all(each.control for each in sent)
    assert {say(each).port_mask for each in sent} == {0xFFFFFFFF & ~0b10}


def test_more_updates_than_ports_go_over_each_port() -> None:
    assert sorted(each.port for each in Two(port_update_evs=9).port("b", 1, False)) == [0, 2, 3]


def test_the_peer_leaves_the_port_at_once_and_answers() -> None:
    two = Two()
    update = two.port("b", 1, False)[0]
    (answer,) = two.give("a", update)
    assert bad(two) == [1]
    assert (opcode_of(answer), answer.control, say(answer)[:4]) == (RESPONSE, True, say(update)[:4])
    assert two.events("a", "peer_port") == [{"peer": "b", "down": [1]}]


def test_the_answer_is_counted() -> None:
    two = Two()
    updates = two.port("b", 1, False)
    two.give("b", *two.give("a", *updates))
    assert two.b.report()["endpoint"] == {"port_updates_sent": 3, "port_updates_answered": 3}
    assert two.drops("b") == {}


def test_a_dead_port_here_takes_its_evs_out_and_is_told() -> None:
    two = Two()
    assert two.port("a", 2, False)
    assert bad(two) == [2]
    assert two.events("a", "port") == [{"port": 2, "up": False}]


def test_sacks_name_dead_ports_and_are_enough() -> None:
    two = Two()
    two.port("b", 3, False)  # and no update arrives
    two.a.post_write(NOW, "b", memoryview(bytes(4096)), 0, 1)
    (packet,) = two.a.transmit(NOW)
    (sack,) = (each for each in two.give("b", packet) if opcode_of(each) == wire.SACK)
    assert parse_sack(memoryview(on_wire(sack))).down_ports == 0b1000
    assert sack.port != 3
    two.give("a", sack)
    assert bad(two) == [3]


def test_ports_that_are_dead_at_the_start_are_told_out_of_band() -> None:
    two = Two(down_at_b=[0])
    list(two.a.transmit(NOW))
    assert bad(two) == [0]


def test_a_port_that_comes_back_is_probed_at_once() -> None:
    two = Two()
    two.give("a", *two.port("b", 1, False))
    probes = [each for each in two.give("a", *two.port("b", 1, True)) if opcode_of(each) == wire.PROBE]
    assert [each.port for each in probes] == [1]
    assert two.events("a", "peer_port") == [{"peer": "b", "down": [1]}, {"peer": "b", "down": []}]


# Order and forgery


def test_an_overtaken_update_changes_nothing() -> None:
    two = Two()
    down, up = two.port("b", 1, False), two.port("b", 1, True)
    two.give("a", up[0], down[0])
    assert bad(two) == []
    assert two.drops("a") == {"port_status_stale": 1}


def test_a_replayed_update_changes_nothing() -> None:
    two = Two()
    down, up = two.port("b", 1, False), two.port("b", 1, True)
    two.give("a", *down, *up)
    before = two.events("a", "peer_port")
    two.give("a", *down, *down)
    assert len(before) == 2
    assert two.events("a", "peer_port") == []
    assert two.drops("a") == {"port_status_stale": 6}


def test_an_overtaken_sack_changes_nothing() -> None:
    two = Two()
    two.a.post_write(NOW, "b", memoryview(bytes(2 * 4096)), 0, 1)
    packets = list(two.a.transmit(NOW))
    two.b.on_port(NOW, 3, False)
    first = [each for each in two.give("b", packets[1]) if opcode_of(each) == wire.SACK]
    two.b.on_port(NOW, 3, True)
    second = [each for each in two.give("b", packets[0]) if opcode_of(each) == wire.SACK]
    two.give("a", *second, *first)
    assert bad(two) == []


def test_a_sack_from_before_does_not_undo_an_update() -> None:
    two = Two()
    two.a.post_write(NOW, "b", memoryview(bytes(4096)), 0, 1)
    old = two.give("b", *two.a.transmit(NOW))
    two.give("a", *two.port("b", 1, False))
    two.give("a", *old)
    assert bad(two) == [1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mask": 0}, "port_mask"), ({"mask": 0b1110}, "port_mask"), ({"mask": 0b1101, "entropy": 5}, "port_mask"),
        ({"mask": 0b1101, "ahead": WINDOW + 1}, "endpoint_number"), ({"mask": 0b1101, "ahead": -WINDOW - 5}, "endpoint_number"),
        ({"mask": 0b1101, "ahead": -2}, "port_status_stale"), ({"mask": 0b1101, "op": 2}, "endpoint_op"),
        ({"mask": 0b1101, "opcode": RESPONSE}, "unexpected_endpoint_reply"),
        ({"mask": 0b1101, "opcode": RESPONSE, "op": wire.EV_PROBE}, "unexpected_endpoint_reply"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_counted_and_changes_nothing(change: dict[str, int], reason: str) -> None:
    two = Two()
    assert two.give("a", two.forged(**change)) == []
    assert (bad(two), two.drops("a")) == ([], {reason: 1})


@pytest.mark.parametrize("far", [WINDOW + 1, -WINDOW - 1, 1 << 23])
def test_a_probe_is_answered_whatever_numbers_somebody_has_forged(far: int) -> None:
    two = Two()
    for step in range(5):
        two.give("a", two.forged(0b1101, step * WINDOW, op=wire.EV_PROBE))
    (answer,) = two.give("a", two.forged(0b1111, far, op=wire.EV_PROBE))
    assert (opcode_of(answer), two.drops("a")) == (RESPONSE, {})


def test_when_all_ports_are_back_sacks_are_not_looked_at_for_ports_any_more() -> None:
    """Whichever tells of it first, the update or a SACK."""
    two = Two()
    update = two.port("b", 1, False)
    two.a.post_write(NOW, "b", memoryview(bytes(3 * 4096)), 0, 1)
    two.give("a", *two.give("b", *two.a.transmit(NOW)))
    two.give("a", *update)
    assert two.a._endpoint.wary
    two.give("a", *two.port("b", 1, True, NOW + 1), now=NOW + 1)
    two.a.post_write(NOW + 1, "b", memoryview(bytes(3 * 4096)), 0, 2)
    two.give("a", *two.give("b", *two.a.transmit(NOW + 1), now=NOW + 1), now=NOW + 1)
    assert not two.a._endpoint.wary


def test_updates_without_end_do_not_move_evs_or_fill_the_history_without_end() -> None:
    two = Two()
    count = 2000
    for number in range(count):
        two.give("a", two.forged(0b1101 if number % 2 else 0b0111, number, entropy=0), now=NOW + number / 1000)
    obeyed = int(UPDATES_AT_ONCE + UPDATES_A_S * count / 1000)
    assert two.drops("a")["port_status_flood"] >= count - obeyed - 1
    assert len(two.events("a", "peer_port")) <= obeyed + 1
    two.give("a", two.forged(0b1111, count), now=NOW + 60)
    assert two.a._endpoint.peers["b"].down == 0


def test_a_stranger_is_refused() -> None:
    two = Two()
    header, trailer = Framer("fd00::c", A, 2, 2, wire.UDP_PORT).endpoint(0, REQUEST, EndpointFields(0, 0, 1, 0))
    assert two.give("a", bytes(header) + trailer) == []
    assert two.drops("a") == {"unknown_peer": 1}


def test_another_qp_takes_no_endpoint_packets() -> None:
    two = Two()
    header, trailer = Framer(B, A, 2, two.attributes["a"]["send_qps"]["b"][0], wire.UDP_PORT).endpoint(
        0, REQUEST, EndpointFields(0, 0, 1, 0)
    )
    assert two.give("a", bytes(header) + trailer) == []
    assert two.drops("a") == {"unknown_qp": 1}


def test_before_the_exchange_nothing_is_taken() -> None:
    two = Two(connect=False)
    assert two.give("a", two.forged(0b1101)) == []
    assert two.drops("a") == {"not_connected": 1}


def test_a_packet_of_another_length_is_refused() -> None:
    two = Two()
    request = Framer(B, A, 2, 2, wire.UDP_PORT).probe(0, 0, 0)
    packet = bytearray(bytes(request[0]) + request[1])
    packet[wire.BTH_OFFSET] = RESPONSE
    packet[-4:] = wire.icrc(packet[:-4])
    assert two.give("a", bytes(packet)) == []
    assert two.drops("a") == {"bad_length": 1}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([REQUEST, RESPONSE]), st.binary(min_size=20, max_size=40), st.integers(0, 3), st.integers(0, 7))
def test_any_endpoint_packet_with_a_right_icrc_is_taken_or_counted(opcode: int, body: bytes, pad: int, entropy: int) -> None:
    two = Two()
    content = wire.BTH.size_bytes + len(body) + 4
    addresses = wire.addresses(bytes.fromhex("fd00" + "00" * 13 + "0b"), bytes.fromhex("fd00" + "00" * 13 + "0a"), entropy, content)
    packet = addresses + wire.BTH.pack(opcode=opcode, pad=pad, destination_qp=2, psn=two.attributes["b"]["endpoint_psn"]) + body
    two.give("a", packet + wire.icrc(packet))
    assert sum(two.drops("a").values()) <= 1


def test_numbers_go_on_after_their_24_bits() -> None:
    two = Two()
    for turn in range(1, 400):  # far enough that some wrap, in steps that are allowed
        ahead = turn * (WINDOW - 1)
        two.give("a", two.forged(0xFFFFFFFF & ~(2 if turn % 2 else 0), ahead), now=NOW + turn)
    assert bad(two) == [1]
    assert two.drops("a") == {}


# In virtual time


class World:
    """Both hosts on a channel; ports go down on the wire, and the hosts are told."""

    def __init__(self, *down: tuple[str, int, float, float], told: bool = True, **params: float) -> None:
        self.two = Two(**params)
        conditions = Conditions(rate_bps=20e6, ports=PORTS, port_down=tuple((host, port, NOW + a, NOW + b) for host, port, a, b in down))
        self.channel = Channel(Host("a", self.two.a), Host("b", self.two.b), conditions, 1, NOW)
        self.switches = sorted((at, host, port, up) for host, port, a, b in down for at, up in ((NOW + a, False), (NOW + b, True)) if told)
        self.data = Random(1).randbytes(BYTES)
        self.done: list[int] = []

    def transfer(self, messages: int, seconds: float) -> None:
        """a writes to b; the hosts are told of their ports in time."""
        for imm in range(messages):
            self.two.a.post_write(self.channel.now, "b", memoryview(self.data), 0, imm)
        until = self.channel.now + seconds
        for at, host, port, up in self.switches:
            self.channel.run(min(at, until))
            self.two.core(host).on_port(at, port, up)
        self.channel.run(until, self._is_done)
        self.done += [completion.imm for completion in self.two.b.take_completions()]
        assert self.done == list(range(messages))
        assert self.two.region == self.data
        assert self.two.a.take_errors() == []

    def _is_done(self) -> bool:
        return not self.two.a.outstanding_messages("b")


@pytest.mark.parametrize("host", ["a", "b"])
def test_the_qp_lives_on_with_the_other_ports_and_takes_the_port_back(host: str) -> None:
    world = World((host, 1, 0.05, 0.2))
    world.transfer(20, 5)
    assert states(world.two.a) == ["GOOD"] * PORTS
    reasons = [str(event["reason"]) for event in world.two.events("a", "ev_state")]
    assert reasons == ["port_down" if host == "a" else "peer_port_down", "port_up"]


def test_two_ports_at_each_end_leave_no_path_and_their_return_ends_the_wait() -> None:
    world = World(*[("a", port, 0.05, 0.4) for port in (0, 1)], *[("b", port, 0.05, 0.4) for port in (2, 3)])
    world.transfer(20, 10)


def test_a_forged_update_costs_only_probes() -> None:
    world = World()
    world.two.give("a", world.two.forged(0b1101, 5, entropy=0))
    assert bad(world.two) == [1]
    world.transfer(20, 5)
    assert states(world.two.a) == ["GOOD"] * PORTS


def test_a_lost_update_of_a_port_that_is_back_is_made_good_by_probes() -> None:
    world = World(told=False)
    world.two.give("a", *world.two.port("b", 1, False))
    world.two.b.on_port(NOW, 1, True)
    world.two.b._endpoint.ready.clear()  # what it would say is lost
    world.transfer(20, 5)
    assert states(world.two.a) == ["GOOD"] * PORTS


# All ports


def all_down(core: MrcCore, at: float = NOW) -> None:
    for port in range(PORTS):
        core.on_port(at, port, False)
    due = core.next_deadline()
    if due is not None and due <= at:
        core.on_timer(at)


@pytest.mark.parametrize(("name", "peer"), [("a", "b"), ("b", "a")])
def test_without_any_port_every_qp_fails_at_once(name: str, peer: str) -> None:
    two = Two()
    all_down(two.core(name))
    errors = two.core(name).take_errors()
    assert [(error.peer, error.reason) for error in errors] == [(peer, "all NIC ports are down")]
    assert two.events(name, "qp_error") == [{"peer": peer, "reason": "all NIC ports are down"}]


def test_a_failed_receive_qp_takes_nothing_any_more() -> None:
    two = Two()
    two.a.post_write(NOW, "b", memoryview(b"x" * 4096), 0, 1)
    (packet,) = two.a.transmit(NOW)
    all_down(two.b)
    two.give("b", packet)
    assert two.drops("b") == {"unknown_qp": 1}
    assert two.region == bytes(BYTES)


def test_qps_wait_as_long_as_they_are_told_to() -> None:
    two = Two(ports_down_s=2.0)
    all_down(two.a)
    two.a.on_timer(NOW + 1.9)
    assert two.a.take_errors() == []
    due = two.a.next_deadline()
    assert due is not None
    assert due <= NOW + 2.0
    two.a.on_timer(NOW + 2.0)
    assert len(two.a.take_errors()) == 1


def test_a_port_that_comes_back_in_time_saves_the_qps() -> None:
    two = Two(ports_down_s=2.0)
    all_down(two.a)
    two.a.on_port(NOW + 1.0, 2, True)
    two.a.on_timer(NOW + 5.0)
    assert two.a.take_errors() == []


def test_qps_that_begin_without_any_port_wait_for_one() -> None:
    two = Two(connect=False)
    all_down(two.a)
    two.a.connect({"b": two.attributes["b"]})
    two.a.on_timer(NOW + 1)
    assert two.a.take_errors() == []


def test_one_port_left_is_enough() -> None:
    two = Two()
    for port in range(PORTS - 1):
        two.a.on_port(NOW, port, False)
    two.a.on_timer(NOW + 10)
    assert two.a.take_errors() == []


def test_a_port_that_carries_only_a_while_after_it_is_up_is_probed_every_two_round_trips() -> None:
    """As an interface whose host gets its addresses and routes back later."""
    two = Two(port_up_rtts=2.0, probe_interval_s=0.05, probe_jitter=0.0, initial_rtt_s=0.1)
    two.port("a", 1, False)
    two.a.on_port(NOW, 1, True)
    times = [NOW + tick / 100 for tick in range(100) if any(opcode_of(each) == wire.PROBE for each in two.a.transmit(NOW + tick / 100))]
    assert times == pytest.approx([NOW, NOW + 0.2, NOW + 0.4, NOW + 0.6, NOW + 0.8], abs=0.011)
