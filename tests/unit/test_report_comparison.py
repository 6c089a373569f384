"""Many arms on one page: every sentence comes from the run's own data. On the made-up run of synthetic_arms."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_arms import ARMS, FRR, SILENT, make_arms_run

import topologies
from testbed.report import comparison, comparison_page, comparison_tables, html, plot_steps, plots, style, write_report
from testbed.report.allowed import allowed_rows
from testbed.report.comparison import ALIKE, BETTER, MISSED, UNKNOWN, WORSE, Effect, compare
from testbed.report.reading import read_run
from testbed.report.routing import routing_under
from testbed.report.spare import spare_of
from testbed.report.summary import summarise_data

HIT = ("f1", "f2", "f4", "f6")  # those that hit traffic in the made-up counters


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return make_arms_run(tmp_path_factory.mktemp("arms"))


@pytest.fixture
def run(whole, tmp_path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "construction-site" / whole.name))


@pytest.fixture(scope="module")
def summary(whole) -> dict:
    return summarise_data(read_run(whole))


@pytest.fixture(scope="module")
def told(whole, summary) -> dict:
    found = comparison_page.comparison_of(read_run(whole), summary)
    assert found is not None
    return found


def cell(told: dict, fault: str, arm: str) -> dict:
    row = next(row for row in told["faults"] if row["fault"] == fault)
    return row["cells"][ARMS.index(arm)]


def edit_arm(run: Path, arm: str, **more: object) -> None:
    for path in (run / arm).glob("*/arm.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


# --- what a comparison says ------------------------------------------------------------------------------------------------------------


def entry(stall_s: float | None, *, hit: bool | None = True, crashes: int = 0) -> dict:
    return {"stall_s": stall_s, "stall_max_s": stall_s, "hit": hit, "crashes": crashes}


def effect(*stalls: float, **more: object) -> Effect:
    return Effect("any", tuple(entry(stall, **more) for stall in stalls), half_step_s=0.2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ours", "other", "outcome"),
    [
        (effect(0.0, 0.1), effect(0.19, 0.19), ALIKE),  # neither lost half a step
        (effect(0.0, 0.1), effect(0.21, 0.25), BETTER),
        (effect(1.0, 4.0), effect(2.0, 5.0), ALIKE),  # each median is within the other's range
        (effect(0.0, 0.1, 0.0), effect(0.05, 6.0, 6.1), BETTER),  # one repeat of the other arm was spared
        (effect(0.0, 0.0, 1.0), effect(0.9, 1.0, 5.0), BETTER),  # one repeat of MRC was not
        (effect(1.0, 1.9), effect(2.0, 5.0), BETTER),
        (effect(2.0, 5.0), effect(1.0, 1.9), WORSE),
        (effect(1.0), effect(1.09), ALIKE),  # one repeat each: under a tenth
        (effect(1.0), effect(1.3), BETTER),
        (effect(1.0, 4.0), effect(2.0, 5.0, crashes=1), BETTER),  # only one of them crashed
        (effect(1.0, 4.0, crashes=1), effect(2.0, 5.0), WORSE),
        (effect(0.0), effect(0.0, hit=False), MISSED),
        (effect(0.0), Effect("any", (entry(None, hit=None),), 0.2), UNKNOWN),
    ],
)
def test_how_mrc_came_off_against_another_arm(ours, other, outcome):
    assert compare(ours, other).outcome == outcome


def test_a_stall_that_another_fault_may_have_made_counts_only_where_there_is_no_other():
    shared, alone = entry(6.0) | {"overlapping": True}, entry(0.3) | {"overlapping": False}
    assert Effect("any", (shared, alone), 0.2).stalls_s == [0.3]
    assert comparison.stall_words(Effect("any", (shared, alone), 0.2)) == "300 ms, 1 shared with another fault and left out"
    assert comparison.stall_words(Effect("any", (shared, shared), 0.2)) == "6 s [6 s to 6 s], shared with another fault"


def test_noise_in_every_step_of_a_long_fault_is_no_stall():
    noisy = tuple(entry(1.5) | {"stall_max_s": 0.15} for _ in range(2))
    stalled = tuple(entry(1.5) | {"stall_max_s": 0.9} for _ in range(2))
    none = effect(0.0, 0.0)
    assert compare(Effect("mrc", noisy, 0.2), none).outcome == ALIKE
    assert compare(Effect("mrc", stalled, 0.2), none).outcome == WORSE


def routed(stall_s: float, **told: object) -> dict:
    return entry(stall_s) | {"routing": {"fib_changes": 4.0, "fib_first_s": 0.1, "fib_last_s": 9.0, "shared": False, **told}}


def test_no_timer_was_waited_for_only_where_every_end_lost_its_carrier():
    """A cut that one end sees: the other waits for its hold time."""
    both = Effect("rc-bgp", (routed(0.1, reasons={"carrier": 2}),), 0.2)
    one = Effect("rc-bgp", (routed(0.1, reasons={"carrier": 1, "hold": 1}),), 0.2)
    assert "no timer was waited for" in comparison.reason(both)
    ordered = Effect("rc-bgp", (routed(0.1, reasons={"shutdown": 4, "notification": 4}),), 0.2)
    assert "by shutdown and notification, so no timer was waited for" in comparison.reason(ordered)
    assert "timer" not in comparison.reason(one)
    assert "sessions fell by carrier and hold" in comparison.reason(one)


def test_faults_that_missed_an_arm_are_no_proof_that_it_was_worse(summary):
    def missed(told: dict) -> dict:
        return {**told, "repeats": [{**r, "faults": [{**f, "hit": False, "stall_s": None} for f in r["faults"]]} for r in told["repeats"]]}

    arms = {arm: told if arm == "mrc" else missed(told) for arm, told in summary["arms"].items()}
    told = comparison.sentences({**summary, "arms": arms}, {})
    assert told["alike"] == told["worse"] == [comparison.NOTHING_COMPARED]


def test_each_arm_is_counted_against_mrc(told):
    assert "MRC against TCP over BGP: MRC better in 2, as good in 2, not on its traffic's path in 2 of 6 faults." in told["tally"]
    assert "MRC against RC over BGP: MRC better in 4, not on its traffic's path in 2 of 6 faults." in told["tally"]
    assert "MRC against MRC over BGP: as good in 4, not on its traffic's path in 2 of 6 faults." in told["tally"]
    assert len(told["tally"]) == len(ARMS) - 1


def test_the_count_tells_where_a_stall_may_be_another_faults(summary):
    arms = json.loads(json.dumps(summary["arms"]))
    for repeat in arms["rc-bgp"]["repeats"]:
        repeat["faults"][0]["overlapping"] = True
    told = comparison.sentences({**summary, "arms": arms}, {})["tally"]
    (line,) = [line for line in told if line.startswith("MRC against RC over BGP:")]
    assert line.endswith("of 6 faults; in 1 a stall is shared with another fault.")


def test_a_carrier_loss_that_bgp_got_by_is_said_with_its_reason(told):
    line = next(line for line in told["alike"] if line.startswith("f1,"))
    part = line[line.index("TCP over BGP") :]
    assert re.search(r"sessions fell with the carrier, so no timer was waited for; tables changed from \d+.* ms to \d+.* ms after", part)
    assert "RC over BGP" not in line.replace("MRC over BGP", "")
    assert "of the job's 8 shortest ways over it 4 have another next hop at the very switch before it" in line


def test_a_silent_loss_is_no_merit_of_routing(told):
    line = next(line for line in told["alike"] if line.startswith("f2,"))
    assert "TCP over BGP" not in line
    assert "no switch's table changed while the fault was on, so routing had no part in it" in line
    assert "Spare next hops" not in line


def test_changes_during_another_fault_are_not_claimed(told, whole):
    """f5 begins while f4 is on: the session that falls then is not over f4's link."""
    line = next(line for line in told["alike"] if line.startswith("f4,"))
    assert "which may be another fault's doing" in line
    assert "sessions fell" not in line
    under = {fault.id: routing_under(read_run(whole).arms["rc-bgp"][0], fault) for fault in read_run(whole).arms["rc-bgp"][0].faults}
    assert (under["f4"].session_losses, under["f4"].shared, under["f5"].session_losses) == (0, True, 2)
    assert (under["f1"].updates, under["f1"].withdrawals, under["f1"].fib_changes, under["f1"].reasons) == (2, 3, 2, {"carrier": 2})


def test_a_session_of_an_earlier_fault_that_comes_back_under_a_later_one_is_not_claimed(run, whole):
    """BGP tries again after up to its connect retry, when the next fault may be on."""
    arm = read_run(whole).arms["rc-bgp"][0]
    first, later = (next(fault for fault in arm.faults if fault.id == name) for name in ("f1", "f2"))
    assert not routing_under(arm, later).shared
    node, peer = first.links[0].split("-") if first.links else first.target.split("-")
    back = {"t_s": later.from_s + 0.5, "source": "routing", "event": "session", "node": node, "peer": peer, "up": True}
    assert routing_under(replace(arm, events=(*arm.events, back)), later).shared


def test_mrc_being_worse_is_said(run):
    """The same steps for MRC as for RC over BGP, and none of its stalls for that arm."""
    for repeat in ("1", "2"):
        ours, other = (run / arm / repeat / "steps.csv" for arm in ("mrc", "rc-bgp"))
        mine = ours.read_text()
        ours.write_text(other.read_text())
        other.write_text(mine)
    data = read_run(run)
    told = comparison_page.comparison_of(data, summarise_data(data))
    worse = next(line for line in told["worse"] if line.startswith("f2,"))
    assert "RC over BGP " in worse.replace("MRC over BGP", "")
    assert cell(told, "f2", "rc-bgp")["note"].endswith("better than MRC")


def test_nothing_is_said_against_mrc_without_mrc(tmp_path):
    run = make_arms_run(tmp_path, repeats=1)
    shutil.rmtree(run / "mrc")
    data = read_run(run)
    told = comparison_page.comparison_of(data, summarise_data(data))
    assert (told["tally"], told["alike"], told["worse"]) == ([], [], [])
    assert [words for words, _, _ in told["glance"]][:2] == ["job time lost", "crashes"]


def test_faults_on_all_arms_and_repeats(told):
    assert cell(told, "f3", "rc-bgp")["stall"] == "no impact"
    assert re.fullmatch(r"6\.\d+ s \[\d\.\d+ s to \d\.\d+ s\]", cell(told, "f2", "rc-bgp")["stall"])
    assert cell(told, "f1", "tcp-bgp")["note"] == "as good as MRC"  # no counter sees what a link without carrier loses: not "0 packets"
    assert all("as good" not in cell(told, fault, "rc-static")["note"] for fault in HIT)
    assert all("as good" not in cell(told, fault, "tcp-bgp")["note"] for fault in SILENT)


def test_control_plane_at_a_glance(told):
    rows = {name: cells for _, name, cells in told["glance"]}
    assert rows["bgp_updates"] == ["none", "8", "8", "8", "8", "none"]
    assert rows["bgp_withdrawals"] == ["none", "12", "12", "12", "12", "none"]
    assert rows["session_losses"] == ["none", "8", "8", "8", "8", "none"]
    assert rows["fib_changes"] == ["none", "8", "8", "8", "8", "none"]
    assert rows["bgp_notifications"] == ["none", "0", "0", "0", "0", "none"]


def test_a_history_without_bgp_messages_tells_no_count_of_them(tmp_path):
    run = make_arms_run(tmp_path, repeats=1, events=False)
    data = read_run(run)
    summary = summarise_data(data)
    rows = {name: cells for _, name, cells in comparison_tables.glance_rows(summary)}
    assert "bgp_updates" not in rows
    assert rows.get("fib_changes", ["none"] + ["0"] * 4 + ["none"])[2] == "0"
    assert summary["arms"]["rc-bgp"]["bgp_updates"]["median"] is None
    assert not any("carrier, so no timer" in line for line in comparison.sentences(summary, {})["alike"])


# --- spare next hops -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "pairs", "told"),
    [
        ("t0_1_1-t1_1_1", [("h1", "h5")], (2, 2, 0, 0)),  # the way up: its T0 has another T1
        ("t0_1_1-t1_1_1", [("h5", "h1")], (2, 0, 3, 0)),  # the way down: T1, T2 and the other pod's T1 have one way only
        ("t1_1_1-t2_1", [("h5", "h1")], (1, 0, 1, 0)),  # t1_2_1 has another T2
        ("t0_1_1-t1_1_1", [("h3", "h1")], (1, 0, 1, 0)),  # in one pod its own T0 chooses
        ("h1-t0_1_1", [("h1", "h5"), ("h5", "h1")], (8, 0, 0, 8)),
        ("t0_1_1-t1_1_1", [("h9", "h5")], (0, 0, 0, 0)),
    ],
)
def test_spare_next_hops_follow_from_the_topology(link, pairs, told):
    found = spare_of(topologies.build("fat-tree", k=4), pairs, [link])
    assert (found.ways, found.local, found.hops, found.cut_off) == told
    assert bool(found.words) == bool(found.ways)


# --- what each side was allowed ----------------------------------------------------------------------------------------------------------


def allowed(run: Path) -> dict[str, dict[str, tuple[str, str]]]:
    data = read_run(run)
    return {what: {arm: (c.value, c.source) for arm, c in zip(data.arms, cells, strict=True)} for what, cells in allowed_rows(data)}


def test_allowed_values_and_their_sources(run):
    rows = allowed(run)
    assert rows["hold time"]["rc-bgp"] == ("9 s", "profile datacenter")
    assert rows["hold time"]["mrc"] == ("–", "")
    assert rows["BFD"]["rc-bgp"] == ("off", "profile datacenter")
    assert rows["MRAI"]["rc-bgp-ovs"] == ("0 s", "default")
    assert rows["flows a pair"]["tcp-bgp"][0] == "4 connections"
    # The made-up scenario sets timeout_exponent for RC; arm.json tells its value.
    assert rows["transport gives up"]["rc-static"] == ("ACK timeout 1.07 s, 7 retries: the QP fails after 8.59 s", "scenario")
    assert rows["choice of paths"]["mrc"][0] == "the sender names each whole path (uSID); no hash"
    assert rows["choice of paths"]["rc-static"][0] == "ECMP, hash symmetric_l3l4+udp, seed 19794"
    assert rows["switches trim"]["mrc"][0] == "from 43,660 B in the queue"
    assert rows["switches trim"]["rc-bgp"][0] == "off"


def give(run: Path, **sections: object) -> None:
    """As the manifest tells a scenario: with its profile and preset, also where these are the defaults."""
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "scenario": {**manifest["scenario"], **sections}}))


def test_an_option_that_the_scenario_sets_comes_from_it_also_where_the_profile_says_the_same(run):
    fabric = {"switching": "frr", "datapath": "kernel", "options": {**FRR, "hold_s": 6, "bfd_interval_ms": 50, "profile": "traditional"}}
    edit_arm(run, "rc-bgp", fabric=fabric)
    give(run, bgp={"profile": "traditional", "hold_s": 6, "keepalive_s": 3}, bgp_ovs={"preset": "frr"})
    rows = allowed(run)
    assert rows["hold time"]["rc-bgp"] == ("6 s", "scenario")
    assert rows["keepalive"]["tcp-bgp"] == ("3 s", "scenario")
    assert rows["BGP profile or preset"]["rc-bgp"] == ("traditional", "scenario")
    assert rows["BGP profile or preset"]["rc-bgp-ovs"] == ("frr", "default")
    assert rows["hold time"]["tcp-bgp"] == ("9 s", "scenario"), "what the scenario sets for all, whatever a file says it became"


@pytest.mark.parametrize(("more", "seed"), [({"ipv4/fib_multipath_hash_seed": "1"}, "seed 19794"), ({}, "seed none, this kernel has none")])
def test_a_hash_seed_that_the_kernel_does_not_have_is_not_claimed(run, more, seed):
    options = {**FRR, "hash_policy": "l4", "ecmp_seed": 19794, "ecmp_width": 64}
    sysctls = {"t0_1_1": {"ipv6/fib_multipath_hash_policy": "3", **more}}
    edit_arm(run, "rc-bgp", fabric={"switching": "frr", "routing": {"options": options, "sysctls": sysctls}})
    assert f"hash l4, {seed}" in allowed(run)["choice of paths"]["rc-bgp"][0]


def test_a_value_of_another_revision_is_not_blamed_on_the_scenario(run):
    """Its default may have been another then."""
    edit_arm(run, "rc-bgp-ovs", fabric={"switching": "ovs-bgp", "options": {"preset": "frr", "hold_s": 9.0, "batch_s": 0.051}})
    rows = allowed(run)
    assert rows["controller's delays"]["rc-bgp-ovs"] == ("a decision 0.051 s", "")
    assert rows["hold time"]["rc-bgp-ovs"] == ("9 s", "default")
    assert rows["BGP profile or preset"]["rc-bgp-ovs"] == ("frr", "default")


# --- the page ----------------------------------------------------------------------------------------------------------------------------


def test_the_page_begins_with_the_comparison(whole):
    page = write_report(whole).read_text()
    order = [page.index(mark) for mark in ("The arms compared", 'id="steps"', 'id="stalls"', "as good as MRC, and why", "<h2>Findings")]
    assert order == sorted(order)
    assert page.count('id="steps"') == 1


def test_one_arm_is_not_compared(tmp_path):
    run = make_arms_run(tmp_path, repeats=1)
    for arm in ARMS[1:]:
        shutil.rmtree(run / arm)
    data = read_run(run)
    assert comparison_page.comparison_of(data, summarise_data(data)) is None
    assert "The arms compared" not in write_report(run).read_text()


def test_broken_arms_are_compared_as_far_as_they_go(run):
    """Steps, history or arm.json missing, an interrupted arm, a fabric of nonsense: the page stands, and says what is unknown."""
    (run / "rc-bgp" / "1" / "steps.csv").unlink()
    (run / "tcp-bgp" / "1" / "events.jsonl").unlink()
    (run / "rc-static" / "2" / "arm.json").unlink()
    shutil.rmtree(run / "mrc-bgp" / "2")
    edit_arm(run, "rc-bgp-ovs", interrupted=True, fabric=["nonsense"], transport=None, ring="h1")
    events = run / "rc-bgp" / "2" / "events.jsonl"
    odd = {"t_s": 8.5, "source": "routing", "event": "bgp_message", "kind": "update", "withdrawn": "many", "announced": -3}
    events.write_text(events.read_text() + json.dumps(odd) + "\n" + json.dumps({"t_s": 8.6, "event": "session", "up": False}) + "\n")
    page = write_report(run).read_text()
    assert "The arms compared" in page
    summary = summarise_data(read_run(run))
    assert summary["arms"]["rc-bgp"]["bgp_updates"]["values"] == [8, 9]
    assert summary["arms"]["rc-bgp"]["bgp_withdrawals"]["values"] == [12, 12]
    assert html.headline([], summary, html.errors(read_run(run)))[0] == "bad"


def test_titles_of_many_arms_stay_short(whole, summary):
    data = read_run(whole)
    with style.styled():
        figures = dict(plots.draw(data, summary))
    title = figures["steps"].texts[0].get_text().replace("\N{NO-BREAK SPACE}", " ")
    assert len(title.splitlines()) <= 3
    assert all(name in title.replace("\n", " ") for name in ("TCP over BGP", "RC on a static path", "crashes: none"))
    assert figures["steps"].get_size_inches()[1] < 16
    assert plot_steps.arm_stalls(data.arms["rc-static"])


def test_the_footer_tells_bgp_once_for_arms_that_share_it(whole, summary):
    text = "; ".join(html.context.footer(read_run(whole), summary))
    assert "BGP of MRC over BGP, RC over BGP, TCP over BGP: profile datacenter, keepalive 3 s, hold 9 s" in text
    assert "BGP of RC over BGP (OVS): preset frr" in text
    assert "RC: preset nccl-18x7, qps 1, ACK timeout 1.07 s, 7 retries" in text
    assert "TCP: connections 4" in text
    assert "smallest of handshakes and data: TCP over BGP 2.0 ms" in text


def test_a_preset_that_the_scenario_overrode_is_not_named(run):
    for arm in ("rc-bgp", "rc-bgp-ovs", "rc-static"):
        edit_arm(run, arm, transport={"preset": "nccl-18x7", "timeout_exponent": 19, "retries": 7, "qps": 1})
    assert html.context.rc_line(read_run(run)) == "RC: qps 1, ACK timeout 2.15 s, 7 retries"
