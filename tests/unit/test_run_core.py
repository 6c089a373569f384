"""The pure parts of a run: ring order, restart step, fidelity verdict, CPU shares."""

import pytest

from testbed.collect.cpu import CpuTimes, parse_cpu_times, shares
from testbed.collect.rate_probe import transmitted_bytes
from testbed.run.fidelity import Observations, judge
from testbed.run.plan import peer, restart_step
from testbed.scenario.traffic import ring_order
from topologies import build

HOSTS = tuple(f"h{n}" for n in range(1, 9))


def observations(**changes):
    calm = {
        "cpu_busy": [0.4, 0.5], "steal": [0.0], "lateness_s": [0.001], "rate_shares": [1.0, 0.99],
        "qdisc_drops": 0, "socket_drops": 0, "netlink_overruns": 0,
    }  # fmt: skip
    return Observations(**{**calm, **changes})


def test_adjacent_ring_is_the_host_order():
    assert ring_order(HOSTS, "adjacent", 4) == HOSTS


def test_strided_ring_leaves_the_group_with_every_hop():
    ring = ring_order(HOSTS, "strided", 4)
    groups = [HOSTS.index(host) // 4 for host in ring]
    assert sorted(ring) == sorted(HOSTS)
    assert all(a != b for a, b in zip(groups, [*groups[1:], groups[0]], strict=True))


@pytest.mark.parametrize(
    ("completed", "first", "expected"),
    [
        ({"h1": 24, "h2": 23}, 0, 20),  # 24 steps done by all: steps 0..23; the checkpoint before step 20 is the last
        ({"h1": 19, "h2": 19}, 0, 20),
        ({"h1": 19, "h2": 18}, 0, 10),
        ({"h1": 5}, 0, 0),  # one rank has not finished any step
        ({}, 20, 20),  # crashed again at once: the same checkpoint
    ],
)
def test_restart_goes_back_to_the_last_checkpoint_of_all_ranks(completed, first, expected):
    assert restart_step(completed, 2, first, 10) == expected


def test_a_calm_machine_is_good():
    assert judge(observations()).verdict == "good"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"cpu_busy": [0.95]}, "suspect"),
        ({"cpu_busy": [1.0]}, "invalid"),
        ({"rate_shares": [0.96]}, "suspect"),
        ({"rate_shares": [1.3]}, "invalid"),
        ({"qdisc_drops": 1}, "suspect"),
        ({"session_flaps": ("t0_1_1-t1_1_1 at 3.0 s (bfd)",)}, "suspect"),
        ({"socket_drops": 1}, "suspect"),
        ({"lateness_s": [0.1]}, "suspect"),
        ({"netlink_overruns": 2}, "suspect"),
    ],
)
def test_each_bad_sign_changes_the_verdict_and_gives_a_reason(change, verdict):
    fidelity = judge(observations(**change))
    assert (fidelity.verdict, len(fidelity.reasons)) == (verdict, 1)


def test_cpu_shares_count_iowait_as_idle_and_steal_apart():
    text = "cpu  {} 0 0 {} 10 0 0 {} 0 0\ncpu0 1 1 1\n"
    before, after = parse_cpu_times(text.format(100, 100, 0)), parse_cpu_times(text.format(150, 140, 10))
    assert shares(before, after) == (0.6, 0.1)


def test_cpu_shares_of_no_time_are_zero():
    assert shares(CpuTimes(1, 0, 5), CpuTimes(1, 0, 5)) == (0.0, 0.0)


def test_transmitted_bytes_reads_the_ninth_column():
    table = "Inter-|\n face |\n  h1-eth0: 1 2 3 4 5 6 7 8 900 10 11 12 13 14 15 16\n    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    assert transmitted_bytes("h1-eth0", table) == 900
    with pytest.raises(ValueError, match="h2-eth0"):
        transmitted_bytes("h2-eth0", table)


def test_an_agent_is_told_both_ends_ports_of_each_path():
    topology = build("multi-plane", planes=4, t0s=2, t1s=1, hosts_per_t0=1)
    assert [(path["port"], path["peer_port"]) for path in peer(topology, "h1", "h2")["paths"]] == [(0, 0), (1, 1), (2, 2), (3, 3)]
