"""Which paths a fault acts on, use of links, congestion and recovery, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import make_run

from testbed.fabric import link_parameters
from testbed.link_settings import LinkSettings
from testbed.report import congestion, effects, link_use, plot_evs, plot_links, style, tables
from testbed.report.model import ArmRun, FaultInterval, LinkCounter, link_tier, sending_end
from testbed.report.reading import read_run
from testbed.report.summary import repeat_summary

PATH = ["h1-t0_1_1", "t0_1_1-t1_1_1", "t1_1_1-t2_1", "t1_2_1-t2_1", "t0_2_1-t1_2_1", "h5-t0_2_1"]
UP, DOWN = PATH[1], PATH[4]


def fault(kind: str, *links: str, target: str = "", **params: object) -> FaultInterval:
    kinds = {"switch-hang": "switch", "host-slow": "host", "port": "port", "bundle": "bundle"}
    return FaultInterval("f1", kind, target or "".join(links[:1]), kinds.get(kind, "link"), "T0-T1", 5.0, 9.0, 5.0, 5.0, 9.0, links, params)


def retired(ev: int = 0) -> dict:
    states = {"from": "GOOD", "to": "ASSUMED_BAD", "last_tx_s": 6.0, "first_lost_tx_s": 5.5}
    return {"t_s": 6.1, "source": "h1", "event": "ev_state", "peer": "h5", "ev": ev, "path": PATH, **states}


def arm(*faults: FaultInterval, **more: object) -> ArmRun:
    return ArmRun("mrc", 1, 20.0, faults=faults, events=[retired()], **more)  # type: ignore[arg-type]


# --- faults and paths ------------------------------------------------------------------------------------------------------------------


def test_the_sending_ends_along_a_path_are_those_that_the_path_passes():
    assert [sending_end(PATH, number) for number in range(6)] == ["h1", "t0_1_1", "t1_1_1", "t2_1", "t1_2_1", "t0_2_1"]


@pytest.mark.parametrize(("link", "sender", "way"), [
    (UP, "t0_1_1", "data"), (UP, "t1_1_1", "return"), (DOWN, "t1_2_1", "data"), (DOWN, "t0_2_1", "return"), ("x-y", "x", ""),
])  # fmt: skip
def test_a_one_way_fault_hits_data_or_what_comes_back(link, sender, way):
    assert fault("one-way", link, **{"from": sender}).way(PATH) == way


def test_a_fault_without_a_sender_hits_both_ways():
    assert fault("silent", UP).way(PATH) == "both"


def test_a_fault_that_names_evs_hits_only_those():
    one = fault("loss", UP, share=0.2, evs=[0, 3])
    assert [one.hits(PATH, ev) for ev in (0, 1, 3)] == [True, False, True]


def test_a_bundle_hits_by_any_of_its_links():
    assert fault("bundle", "x-y", UP, target="x-y +1 more").hits(PATH)


def test_a_port_fault_hits_by_its_link():
    assert fault("port", PATH[0], target="h1-eth0").hits(PATH)


def test_a_slow_host_hits_no_path():
    assert not fault("host-slow", target="h1").hits(PATH)


def test_a_one_way_fault_touches_only_the_direction_that_its_sender_sends():
    one = fault("one-way", UP, **{"from": "t0_1_1"})
    assert [one.touches(UP, end) for end in UP.split("-")] == [True, False]


LOSING = ("carrier", "silent", "remote", "one-way", "loss", "port", "switch-kill", "switch-reboot", "switch-hang", "bundle", "flap")


@pytest.mark.parametrize(("kind", "false"), [*((kind, 0) for kind in LOSING), ("rate", 1), ("host-slow", 1)])
def test_only_a_fault_that_loses_packets_justifies_a_retirement(kind, false):
    assert effects.false_retirements(arm(fault(kind, UP))) == false


def test_a_retirement_of_an_ev_that_the_fault_spares_is_false():
    assert effects.false_retirements(arm(fault("loss", UP, evs=[7]))) == 1


def program(loss: object) -> dict:
    return {"fabric": {"link_program": {"loss_by_tier": loss}}}


@pytest.mark.parametrize(("loss", "false"), [
    ({"NIC-T0": 0.01}, 0), ({"T1-T2": 0.001}, 0), ({"T0-T1": 0.0}, 1), ({}, 1), (None, 1), ({"NIC-T0": "1 %"}, 1),
])  # fmt: skip
def test_random_loss_on_a_tier_of_the_path_justifies_a_retirement(loss, false):
    assert effects.false_retirements(arm(info=program(loss))) == false


def test_random_loss_elsewhere_justifies_no_retirement():
    below = {**retired(), "path": [PATH[0], UP, "t0_2_1-t1_1_1", PATH[5]]}
    assert effects.false_retirements(ArmRun("mrc", 1, 20.0, events=[below], info=program({"T1-T2": 0.05}))) == 1


def test_the_fabric_itself_tells_of_random_loss_where_the_report_looks_for_it():
    fabric = {"link_program": link_parameters.manifest(LinkSettings(rate_bps=10_000_000, loss={"NIC-T0": 0.01}))}
    assert ArmRun("mrc", 1, 20.0, info={"fabric": fabric}).lossy_tiers == {"NIC-T0"}


def test_random_loss_is_no_fault_that_could_be_detected():
    assert effects.detections(arm(info=program({"NIC-T0": 0.01}))) == []


def test_a_detection_tells_whether_data_or_acknowledgements_were_lost():
    assert effects.detections(arm(fault("one-way", UP, **{"from": "t1_1_1"})))[0].way == "return"


def test_traffic_before_a_fault_is_that_of_the_two_seconds_before_it_for_streams():
    sent = ((2.0, 0.0), (4.0, 0.0), (5.0, 40.0))
    links = [LinkCounter(UP, "t0_1_1", 40.0, 0.0, (), sent)]
    busy, idle = arm(fault("rate", UP), job={"kind": "streams"}, links=links), arm(fault("rate", UP), job={"kind": "streams"})
    assert (effects.carried_traffic(busy, busy.faults[0], []), effects.carried_traffic(idle, idle.faults[0], [])) == (True, None)


@pytest.mark.parametrize(
    ("interval_ms", "packets", "hit"), [(50, 60.0, False), (50, 200.0, True), (0, 60.0, True), (300, 16.0, False), (300, 60.0, True)]
)
def test_what_bfd_sends_is_no_traffic_of_the_job(interval_ms, packets, hit):
    """At 50 ms x 3 an idle link carries 20 to 27 packets a second each way: a fault there says nothing about the job."""
    links = [LinkCounter(UP, "t0_1_1", packets, 0.0, (), ((2.0, 0.0), (4.0, 0.0), (5.0, packets)))]
    info = {"fabric": {"routing": {"options": {"hold_s": 9, "bfd_interval_ms": interval_ms, "bfd_multiplier": 3}}}}
    run = arm(fault("silent", UP), job={"kind": "streams"}, links=links, info=info)
    assert effects.carried_traffic(run, run.faults[0], []) is hit


@pytest.mark.parametrize(("name", "lost", "hit"), [("rc-bgp-ovs", 27.0, False), ("rc-bgp-ovs", 165.0, True), ("rc-bgp", 27.0, True)])
def test_what_switches_call_into_a_dead_link_is_no_traffic_of_the_job(name, lost, hit):
    """A session of the controller's BGP that fell to a silent loss of 12 s: after it the switches call each other 5 times a second."""
    links = [LinkCounter(UP, "t0_1_1", 40.0, 0.0, ((4.9, 0.0), (17.0, lost)), ((2.0, 0.0), (5.0, 1.0)))]
    dead = replace(fault("silent", UP), end_s=16.9, effective_s=5.0, issued_s=5.0)
    run = replace(arm(dead, job={"kind": "streams"}, links=links, info={"fabric": {"options": {"hold_s": 9.0}}}), arm=name)
    assert effects.carried_traffic(run, run.faults[0], []) is hit


@pytest.mark.parametrize(("link", "packets", "hit"), [("h1-t0_1_1", 40.0, True), ("h1-t0_1_1", 1.0, False), ("h2-t0_1_1", 40.0, None)])
def test_a_slow_host_is_hit_if_its_own_links_carried_something(link, packets, hit):
    links = [LinkCounter(link, "h1", packets, 0.0, (), ((2.0, 0.0), (4.0, 0.0), (5.0, packets)))]
    run = arm(fault("host-slow", target="h1"), job={"kind": "streams"}, links=links)
    assert effects.carried_traffic(run, run.faults[0], []) is hit


def test_a_slow_host_takes_no_packets():
    links = [LinkCounter("h1-t0_1_1", "h1", 40.0, 0.0, ((6.0, 9.0),), ((2.0, 0.0), (5.0, 40.0)))]
    run = arm(fault("host-slow", target="h1"), job={"kind": "streams"}, links=links)
    assert effects.fault_effects(run, [], None)[0].packets_lost is None


# --- use of links ----------------------------------------------------------------------------------------------------------------------


def counter(link: str, sender: str, megabits: float) -> LinkCounter:
    octets = megabits * 1e6 / 8
    return LinkCounter(link, sender, octets / 4200, octets, octets=((10.0, octets / 2), (20.0, octets)))


def used(*counters: LinkCounter, **more: object) -> ArmRun:
    return ArmRun("mrc", 1, 20.0, links=counters, info={"fabric": {"rate_bps": 10e6}}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("link", "sender", "place"), [
    ("h1-t0_1_1", "h1", ("NIC-T0", "up")), ("h1-t0_1_1", "t0_1_1", ("NIC-T0", "down")), (UP, "t1_1_1", ("T0-T1", "down")),
    ("t1_1_1-t2_1", "t1_1_1", ("T1-T2", "up")),
])  # fmt: skip
def test_a_link_direction_has_a_tier_and_a_way(link, sender, place):
    one = counter(link, sender, 1.0)
    assert (link_tier(one.link), link_use.way_of(one)) == place


def test_use_is_what_was_sent_of_what_the_rate_allows():
    run = used(counter(UP, "t0_1_1", 50.0))
    assert link_use.utilisation(run, run.links[0]) == pytest.approx(0.25)


def test_use_is_described_by_tier_and_way():
    told = link_use.use_summary(used(counter(UP, "t0_1_1", 100.0), counter("t0_1_1-t1_1_2", "t0_1_1", 0.0), counter(UP, "t1_1_1", 20.0)))
    assert told["T0-T1"]["up"] == {"links": 2, "max": 0.5, "busiest": UP, "mean": 0.25, "cv": 1.0}
    assert told["T0-T1"]["down"]["mean"] == pytest.approx(0.1)


def test_the_hosts_own_links_are_not_among_the_fabrics():
    told = link_use.use_summary(used(counter(UP, "t0_1_1", 100.0), counter("h1-t0_1_1", "h1", 200.0)))
    assert link_use.use_metrics(told) == {"link_use_max": 0.5, "link_use_mean": 0.5, "link_use_cv": 0.0}


def test_the_picture_of_a_ring_leaves_out_what_no_arm_could_use():
    run = used(counter(UP, "t0_1_1", 100.0), counter("t0_1_1-t1_1_2", "t0_1_1", 0.0))
    assert plot_links.panels_of([run], in_shares=True) == {("T0-T1", "up"): {"mrc": [0.5]}}


def test_the_picture_of_streams_shows_idle_links():
    run = used(counter(UP, "t0_1_1", 100.0), counter("t0_1_1-t1_1_2", "t0_1_1", 0.0), job={"kind": "streams"})
    assert plot_links.panels_of([run], in_shares=True) == {("T0-T1", "up"): {"mrc": [0.5, 0.0]}}


# --- congestion and old files ----------------------------------------------------------------------------------------------------------

NEW = {
    "t_s": "1", "link": "a-b", "from_node": "a", "tx_packets": "9", "tx_bytes": "900", "dropped_packets": "1", "lost_packets": "2",
    "ev_dropped_packets": "4", "queue_dropped_packets": "8", "marked_packets": "16", "trimmed_packets": "32", "trimmed_bytes": "64",
}  # fmt: skip


def test_what_faults_and_chance_took_is_one_count_and_congestion_another():
    row = tables.link_row(NEW)
    assert (row.taken, row.outcomes) == (7.0, (8.0, 16.0, 32.0))


def test_outcomes_before_the_jobs_start_do_not_count():
    rows = [tables.link_row({**NEW, "t_s": "-1"}), tables.link_row({**NEW, "marked_packets": "20"})]
    assert congestion.outcome_total(ArmRun("mrc", 1, 9.0, links=tables.link_counters(rows)), "marked_packets") == 4.0


def test_an_old_file_tells_nothing_of_congestion_rather_than_zero(tmp_path):
    old = read_run(make_run(tmp_path, repeats=1)).arms["mrc"][0]
    assert [congestion.outcome_total(old, name) for name in congestion.OUTCOMES] == [None, None, None]


def recovery(count: float, median: float, p99: float) -> dict:
    return {"count": count, "median_s": 0.1, "p99_s": 0.2, "median_srtt": median, "p99_srtt": p99}


def test_recovery_is_the_median_over_hosts_by_their_counts():
    agents = {"h1": {"recoveries": {"trimmed": recovery(90, 1.0, 2.0)}}, "h2": {"recoveries": {"trimmed": recovery(10, 5.0, 9.0)}}}
    run = ArmRun("mrc", 1, 9.0, agents=agents)
    assert congestion.recovery_median_srtt(run) == 1.0
    assert congestion.recoveries(run) == {"trimmed": {"count": 100.0, "median_srtt": 1.0, "p99_srtt": 9.0}}


@pytest.mark.parametrize("told", [None, 3, {"trimmed": None}, {"trimmed": recovery(0, 1.0, 1.0)}, {"trimmed": {"count": 3}}])
def test_damaged_recoveries_are_none(told):
    assert congestion.recovery_median_srtt(ArmRun("mrc", 1, 9.0, agents={"h1": {"recoveries": told}})) is None


def test_links_and_params_of_a_fault_are_read(tmp_path: Path):
    run = make_run(tmp_path, repeats=1)
    text = (run / "faults.json").read_text().replace('"source": "$.faults[0]"', '"links": ["p-q"], "params": {"from": "p"}', 1)
    (run / "faults.json").write_text(text)
    first, second = read_run(run).arms["mrc"][0].faults[:2]
    assert (first.links, first.params, second.links) == (("p-q",), {"from": "p"}, ())


# --- the picture of EVs ----------------------------------------------------------------------------------------------------------------


def test_the_scene_of_a_fault_ends_when_its_own_evs_are_back(tmp_path):
    data = read_run(make_run(tmp_path, repeats=1))
    told = plot_evs.scene(data.folder, data.arms["mrc"][0])
    assert told is not None
    assert (told.fault.id, told.pair, told.hit, len(told.sent)) == ("f1", ("h1", "h5"), (0, 1), 4)
    assert told.span[1] == pytest.approx(8.0 + 4.0 + 0.6 + plot_evs.AFTER_S)


@pytest.mark.parametrize(("bad", "words"), [
    ([(5.2, 9.5)], "retired 200 ms after its begin, back 500 ms after its end"),
    ([(5.2, 6.0), (7.0, 8.0), (8.5, 9.5)], "retired 3 times, first 200 ms after its begin, at last back 500 ms after its end"),
    ([(5.2, 6.0), (7.0, 20.0)], "retired 2 times, first 200 ms after its begin, never back"),
])  # fmt: skip
def test_the_title_of_a_scene_tells_how_often_an_ev_was_retired(bad, words):
    sent = dict.fromkeys(range(4), np.zeros(1))
    scene = plot_evs.Scene(arm(), fault("loss", UP), ("h1", "h5"), (0,), sent, {0: bad}, {0: []}, bad)
    assert plot_evs._title([scene]).endswith(words)


def test_a_retirement_for_a_later_fault_on_the_same_path_is_not_the_scenes(tmp_path):
    """Both spans begin within a second of the first fault's end; the second fault explains the second one."""
    first, second = fault("silent", UP), FaultInterval("f2", "silent", DOWN, "link", "T0-T1", 9.2, 14.0, 9.2, 9.2, 14.0, (DOWN,))
    back = {**retired(), "from": "ASSUMED_BAD", "to": "GOOD"}
    events = [{**retired(), "t_s": 5.2}, {**back, "t_s": 9.1}, {**retired(), "t_s": 9.6}, {**back, "t_s": 14.5}]
    (tmp_path / "mrc" / "1").mkdir(parents=True)
    rows = [f"{t_s},h1,h5,{ev},GOOD,{t_s * 10},0,0" for t_s in range(20) for ev in range(2)]
    (tmp_path / "mrc" / "1" / "paths.csv").write_text("\n".join(["t_s,host,peer,ev,state,tx_packets,lost_packets,probes_sent", *rows]))
    told = plot_evs.scene(tmp_path, ArmRun("mrc", 1, 20.0, faults=(first, second), events=events))
    assert told is not None
    assert (told.fault, told.retired, told.others) == (first, [(5.2, 9.1)], [second])
    assert plot_evs._title([told]).endswith("retired 200 ms after its begin, back 100 ms after its end")


def test_an_arm_without_retirements_has_no_scene(tmp_path):
    data = read_run(make_run(tmp_path, repeats=1))
    assert plot_evs.scene(data.folder, data.arms["rc-bgp"][0]) is None


@pytest.mark.parametrize(("kinds", "height"), [(0, 0.0), (2, 2 * style.LANE), (9, style.ALL_LANES)])
def test_the_lanes_of_faults_leave_most_of_a_panel_to_the_data(kinds, height):
    assert style.lanes_height([str(kind) for kind in range(kinds)]) == height


@pytest.mark.parametrize(("name", "known"), [("mrc", 0.0), ("mrc-no-trim", 0.0), ("rc-bgp", None), ("mrcury", None)])
def test_only_of_an_arm_that_has_evs_silence_means_that_none_was_retired(name, known):
    begin = {"t_s": 0.0, "source": "run", "event": "job_start", "attempt": 1, "step": 0}
    assert repeat_summary(ArmRun(name, 1, 20.0, events=[begin]))[0]["metrics"]["false_retirements"] == known
