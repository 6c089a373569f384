"""Do links do what they are asked to? Measured on real packets, each figure beside what it should be.

    checks = run(runtime_dir() / "selftest")       # inside a sandbox: on a small fabric of its own
    checks = check_fabric(fabric)                  # on a fabric that is up and idle

A statistical check fails by chance once in 15,000 times (4 standard deviations). Nothing here changes queues; the parameters of the rows
that are used for the checks are put back.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hosts.wire import CE, DSCP_CONTROL, DSCP_NO_TRIM, DSCP_TRIMMABLE, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, ECT0
from testbed.command import in_net
from testbed.command import run as run_command
from testbed.errors import HostError
from testbed.fabric import link_parameters
from testbed.fabric.bpf import ROW, row_of
from testbed.fabric.fabric import Fabric
from testbed.fabric.link_parameters import LinkParameters, Role
from testbed.fabric.probe import Wire, data_frame, full_payload, traffic_class
from testbed.link_settings import LinkSettings
from testbed.reporting import Reporter, SilentReporter
from topologies import End, Link, Topology, build

RATE_BPS, BASE_RTT_S = 50_000_000, 0.002
RATE_TOLERANCE = 0.03
RATE_PROBE_S = 0.5
RATE_ATTEMPTS = 3
"""A machine that is busy for a moment slows a good link down once; a wrong link is wrong each time."""
STANDARD_DEVIATIONS = 4.0
SCHEDULING_S = 0.002
"""What a busy machine may add to a delay; the queue that control must overtake takes twenty times that."""
_PACKETS = 10_000
_LEAST_TRIMMED = 500
_LEAST_WAIT_S = 0.1


@dataclass(frozen=True)
class Check:
    """One figure: what was measured, what it should be (in words with units), and whether it is."""

    name: str
    measured: str
    expected: str
    good: bool


def default_topology() -> Topology:
    """Two hosts on two T0s: the smallest fabric with links of two tiers."""
    return build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)


def default_settings() -> LinkSettings:
    """Links with all that can be checked."""
    return LinkSettings(rate_bps=RATE_BPS, ecn=True, trimming=True, base_rtt_s=BASE_RTT_S)


def run(
    run_dir: Path, topology: Topology | None = None, settings: LinkSettings | None = None, reporter: Reporter | None = None
) -> list[Check]:
    """Brings a fabric of Open vSwitch up, checks it, and takes it down. Inside a sandbox only; HostError otherwise."""
    reporter = reporter or SilentReporter()
    fabric = Fabric(topology or default_topology(), settings or default_settings(), "ovs", run_dir)
    reporter.phase("bringing the fabric up")
    with fabric.deployed():
        return check_fabric(fabric, reporter)


def check_fabric(fabric: Fabric, reporter: Reporter | None = None) -> list[Check]:
    """What was set up, rates of a sample of links, and everything else on the first host's link. Needs an idle fabric with no faults."""
    reporter = reporter or SilentReporter()
    reporter.phase("reading everything back")
    checks = [check_set_up(fabric), check_parameters(fabric)]
    for end in sample(fabric.topology):
        reporter.phase(f"measuring the rate of {end.ifname}")
        checks.append(check_rate(fabric, end))
    host_link = fabric.topology.links_of(fabric.topology.hosts[0])[0]
    reporter.phase(f"measuring trimming, marks, loss and priority on {host_link.name}")
    with Wire(fabric, host_link) as link:
        checks += [check(link) for check in (check_overload, check_marking, check_loss, check_priority)]
    with Wire(fabric, host_link, from_a=False) as link:
        checks.append(check_last_hop(link))
    return checks


def sample(topology: Topology) -> list[End]:
    """Who sends on the links to measure: of each tier the first link upwards and the last one downwards."""
    by_tier: dict[str, list[Link]] = {}
    for link in topology.links.values():
        by_tier.setdefault(link.tier, []).append(link)
    return [end for links in by_tier.values() for end in (links[0].a, links[-1].b)]


def check_set_up(fabric: Fabric) -> Check:
    """MTU, addresses, queues, classes, filters and program of every port, and the tables of every switch, as the kernel tells them."""
    ports = 2 * len(fabric.topology.links)
    try:
        fabric.verify()
    except HostError as error:
        return Check("set up", str(error), "as asked", good=False)
    return Check("set up", f"{ports} ports and {len(fabric.topology.switches)} switches read back", "as asked", good=True)


def check_parameters(fabric: Fabric) -> Check:
    """The link program's parameters of every link direction."""
    rows = fabric.link_counters()
    asked = np.zeros(len(rows), ROW)
    link_parameters.set_up_rows(asked, fabric.topology, fabric.settings)
    ends = [(link, from_a) for link in fabric.topology.links.values() for from_a in (True, False)]
    wrong = [
        f"{link.name} from {(link.a if from_a else link.b).node}"
        for link, from_a in ends
        if link_parameters.read(rows[row_of(link, from_a)]) != link_parameters.read(asked[row_of(link, from_a)])
    ]
    measured = f"{len(wrong)} of {len(ends)} differ: {', '.join(wrong[:3])}" if wrong else f"{len(ends)} link directions read back"
    return Check("link parameters", measured, "as asked", not wrong)


def check_rate(fabric: Fabric, end: End) -> Check:
    """What leaves that end in half a second of saturation; the best of RATE_ATTEMPTS."""
    share = math.inf
    for _ in range(RATE_ATTEMPTS):
        share = min(share, _rate_share(fabric, end), key=lambda found: abs(found - 1))
        if abs(share - 1) <= RATE_TOLERANCE:
            break
    good = abs(share - 1) <= RATE_TOLERANCE
    return Check(f"rate of {end.ifname}", f"{share:.1%} of the asked rate", f"100% +- {RATE_TOLERANCE:.0%}", good)


def _rate_share(fabric: Fabric, end: End) -> float:
    settings = fabric.settings
    probe = [sys.executable, "-m", "testbed.collect.rate_probe", end.ifname, str(settings.mtu_bytes), str(RATE_PROBE_S)]
    return float(run_command(in_net(fabric.pid(end.node), probe), f"measuring the rate of {end.ifname}")) / settings.rate_bps


def check_overload(link: Wire) -> Check:
    """Far more than a switch's queue may hold, at once: every packet comes out whole or trimmed, or counts as dropped without trimming."""
    return _overload(link, "fabric", "trimming")


def check_last_hop(link: Wire) -> Check:
    """The same towards a host, with packets that may be marked: there trimmed ones say so, and none is marked."""
    return _overload(link, "last_hop", "trimming at the last hop")


def _overload(link: Wire, role: Role, name: str) -> Check:
    parameters = link_parameters.of_settings(link.settings, role)
    if not parameters.limit_bytes:
        return Check(name, "switched off", "switched off", good=True)
    frame = data_frame(full_payload(link.settings), DSCP_TRIMMABLE, ECT0)
    count = max(_LEAST_TRIMMED, 3 * parameters.limit_bytes // len(frame))
    before, drops = link_parameters.counts(link.row), link.qdisc_drops()
    with link.using(parameters):
        link.send([frame] * count)
        dropped = link_parameters.counts(link.row)["queue_dropped_packets"] - before["queue_dropped_packets"]
        found = [frame for frame, _ in link.receive(count - dropped)]
    overload = Overload(count, len(frame), tuple(found), dropped, link.qdisc_drops() - drops)
    return judged_overload(name, overload, role == "last_hop", link.settings.trimming)


@dataclass(frozen=True)
class Overload:
    """What became of `sent` ECN-capable packets of `whole_bytes`: those `found` at the other end, and what was counted as lost."""

    sent: int
    whole_bytes: int
    found: tuple[bytes, ...]
    dropped: int
    qdisc_drops: int

    @property
    def whole(self) -> int:
        """Packets that came out as they were sent."""
        return sum(len(frame) == self.whole_bytes for frame in self.found)

    @property
    def trimmed(self) -> tuple[int, ...]:
        """The DSCP of each packet that came out shorter."""
        return tuple(traffic_class(frame)[0] for frame in self.found if len(frame) < self.whole_bytes)

    @property
    def marked(self) -> int:
        """Packets that came out with CE."""
        return sum(traffic_class(frame)[1] == CE for frame in self.found)

    def __str__(self) -> str:
        return (
            f"{self.sent} sent, {self.whole} whole, {len(self.trimmed)} trimmed, {self.dropped} dropped, "
            f"{self.qdisc_drops} lost in queues, {self.marked} marked"
        )


def judged_overload(name: str, overload: Overload, last_hop: bool, trims: bool) -> Check:
    """None may vanish; `trims`: what is too much is trimmed, else it is counted as dropped; `last_hop`: with its DSCP, and no marks."""
    dscp = DSCP_TRIMMED_LASTHOP if last_hop else DSCP_TRIMMED
    surplus, other = (len(overload.trimmed), overload.dropped) if trims else (overload.dropped, len(overload.trimmed))
    good = (
        overload.whole > 0
        and surplus > 0
        and overload.whole + surplus == overload.sent
        and other == 0
        and overload.qdisc_drops == 0
        and set(overload.trimmed) <= {dscp}
        and not (last_hop and overload.marked)
    )
    expected = f"whole + trimmed = {overload.sent}, trimmed have DSCP {dscp}" if trims else f"whole + dropped = {overload.sent}"
    return Check(name, str(overload), expected + (", none marked" if last_hop else ""), good)


def check_marking(link: Wire) -> Check:
    """The virtual queue stands at half the ramp: half of the packets are marked."""
    second_bytes, seconds = 1_000_000, 30  # so long that what is sent and what drains meanwhile hardly changes it
    ramp = LinkParameters(rate_bps=8 * second_bytes, ecn_max_bytes=2 * second_bytes * seconds)
    with link.using(ramp):
        link.row["free_at_ns"] = time.monotonic_ns() + seconds * 10**9
        before = int(link.row["free_at_ns"]) - time.monotonic_ns()
        frames = link.pass_on([data_frame(0, DSCP_TRIMMABLE, ECT0)] * _PACKETS)
        after = int(link.row["free_at_ns"]) - time.monotonic_ns()
    theory = (before + after) / 2 / (2 * seconds * 10**9)
    marked = sum(traffic_class(frame)[1] == CE for frame in frames)
    return judged_share("marked share", marked, len(frames), theory)


def check_loss(link: Wire, share: float = 0.05) -> Check:
    """The share that is missing, of packets of every class."""
    link_parameters.reseed(link.row, link.number, link.settings.seed, ("loss",))
    with link.using(LinkParameters(loss=share)):
        frames = link.pass_on([data_frame(0, DSCP_NO_TRIM)] * _PACKETS)
    return judged_share("lost share", _PACKETS - len(frames), _PACKETS, share)


def check_priority(link: Wire, rounds: int = 8) -> Check:
    """A control packet behind a long queue of data overtakes all of it but what HTB has already let go."""
    frame, control = data_frame(full_payload(link.settings), DSCP_NO_TRIM), data_frame(0, DSCP_CONTROL)
    in_front_s = (link.settings.burst_bytes + 2 * link.settings.frame_bytes) / link.settings.rate_bytes_per_s
    wait_bytes = round(max(_LEAST_WAIT_S, 4 * in_front_s) * link.settings.rate_bytes_per_s)
    queued = min(link.settings.queue_bytes * 9 // 10, wait_bytes) // len(frame)
    with link.using(LinkParameters()):
        idle_s = statistics.median(_control_delay_s(link, control, []) for _ in range(5 * rounds))
        loaded_s = statistics.median(_control_delay_s(link, control, [frame] * queued) for _ in range(rounds))
    bound_s = idle_s + in_front_s + SCHEDULING_S
    queue_s = queued * len(frame) / link.settings.rate_bytes_per_s
    measured = f"median {1e6 * loaded_s:.0f} us behind {1e3 * queue_s:.0f} ms of data, {1e6 * idle_s:.0f} us idle"
    return Check("control under load", measured, f"at most {1e6 * bound_s:.0f} us", loaded_s <= bound_s)


def _control_delay_s(link: Wire, control: bytes, load: list[bytes]) -> float:
    link.send(load)
    sent_s = time.time()
    link.send([control])
    arrivals = link.receive(len(load) + 1)
    return next((arrival_s - sent_s for frame, arrival_s in arrivals if frame == control), math.inf)


def judged_share(name: str, hits: int, count: int, theory: float) -> Check:
    """Whether `hits` of `count` lie within the interval of a binomial distribution (normal approximation)."""
    margin = STANDARD_DEVIATIONS * math.sqrt(theory * (1 - theory) / max(count, 1))
    share = hits / max(count, 1)
    return Check(name, f"{share:.2%} of {count}", f"{theory:.2%} +- {margin:.2%}", count > 0 and abs(share - theory) <= margin)
