"""Effects of faults and detection, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.report import effects
from testbed.report import statistics as stats
from testbed.report.model import ArmRun, FaultInterval, LinkCounter, StepRow

PATH = ["h1-t0_1_1", "t0_1_1-t1_1_1", "h2-t0_1_1"]


def link_fault(name: str, begin: float, end: float, target: str = "t0_1_1-t1_1_1", kind: str = "carrier") -> FaultInterval:
    return FaultInterval(name, kind, target, "link", "T0-T1", begin, end, begin - 0.001, begin, end)


def steps(*ends: float) -> list[StepRow]:
    starts = (0.0, *ends)
    return [StepRow(1, number, 0, starts[number], end, True) for number, end in enumerate(ends)]


def run(**parts: object) -> ArmRun:
    return ArmRun("mrc", 1, 20.0, **parts)  # type: ignore[arg-type]


def retired(t: float, last: float | None, first: float | None = None, **more: object) -> dict:
    event = {"t_s": t, "source": "h1", "event": "ev_state", "peer": "h2", "ev": 3, "path": PATH, "from": "GOOD", "to": "ASSUMED_BAD"}
    return {**event, "last_tx_s": last, "first_lost_tx_s": first, **more}


AGENTS = {"h1": {"base_rtt_s": {"h2": 0.002}}}


def effects_of(arm: ArmRun) -> list[effects.FaultEffect]:
    return effects.fault_effects(arm, stats.job_steps(arm), 1.0, settle_s=1.0)


def test_a_faults_stall_is_what_its_steps_lost():
    arm = run(steps=steps(1, 2, 6, 7, 8), faults=[link_fault("f1", 2.5, 3.0)])
    assert (effects_of(arm)[0].stall_s, effects_of(arm)[0].stall_max_s) == (3.0, 3.0)


def test_noise_under_a_long_fault_cancels_out():
    arm = run(steps=steps(1, 2.1, 3.0, 4.1, 5.0), faults=[link_fault("f1", 1.5, 4.5)])
    assert effects_of(arm)[0].stall_s == pytest.approx(0.0)


def test_faults_that_share_a_stalled_step_are_marked_overlapping():
    arm = run(steps=steps(1, 2, 6, 7, 8), faults=[link_fault("f1", 2.5, 3.0), link_fault("f2", 3.5, 4.0)])
    assert [effect.overlapping for effect in effects_of(arm)] == [True, True]


def test_a_fault_alone_is_not_overlapping():
    arm = run(steps=steps(1, 2, 6, 7, 8, 9, 10, 11), faults=[link_fault("f1", 2.5, 3.0), link_fault("f2", 9.5, 9.8)])
    assert [effect.overlapping for effect in effects_of(arm)] == [False, False]


def test_a_fault_that_never_came_has_no_stall_rather_than_zero():
    never = FaultInterval("f1", "carrier", "x-y", "link", "T0-T1", 1.0, 2.0, None, None, None)
    assert effects_of(run(steps=steps(1, 2), faults=[never]))[0].stall_s is None


def test_groups_tell_the_faults_that_came_alone_apart():
    three = [link_fault("f1", 2.5, 3.0), link_fault("f2", 3.5, 4.0), link_fault("f3", 10.0, 10.1)]
    arm = run(steps=steps(1, 2, 6, 7, 8, 9, 12), faults=three)
    group = effects.group_effects(effects_of(arm), lambda effect: effect.kind)["carrier"]
    assert (group["faults"], group["stall_median_s"], group["alone"]["faults"], group["alone"]["stall_max_s"]) == (3, 3.0, 1, 2.0)


def test_detection_is_from_the_effect_to_the_last_packet():
    found = effects.detections(run(faults=[link_fault("f1", 5.0, 9.0)], events=[retired(5.010, 5.006, 5.004)], agents=AGENTS))
    assert [(d.after_effect_s, d.after_first_loss_s, d.in_rtts()) for d in found] == [pytest.approx((0.006, 0.002, 3.0))]


def test_a_packet_on_its_way_counts_as_lost_when_the_fault_takes_effect():
    found = effects.detections(run(faults=[link_fault("f1", 5.0, 9.0)], events=[retired(5.010, 5.006, 4.998)]))
    assert found[0].after_first_loss_s == pytest.approx(0.006)


def test_a_path_that_was_not_used_after_the_effect_was_left_at_once():
    found = effects.detections(run(faults=[link_fault("f1", 5.0, 9.0)], events=[retired(5.010, 4.999)]))
    assert found[0].after_effect_s == 0.0


def test_only_the_first_retirement_of_an_ev_under_a_fault_is_its_detection():
    again = [retired(5.010, 5.006, 5.004), retired(7.0, 6.9, 6.8), retired(7.5, 7.4, 7.3, ev=4)]
    found = effects.detections(run(faults=[link_fault("f1", 5.0, 9.0)], events=again))
    assert [(detection.ev, detection.t_s) for detection in found] == [(3, 5.010), (4, 7.5)]


def test_loss_by_chance_is_there_to_be_found_from_the_first_packet_that_it_took():
    lossy = replace(link_fault("f1", 5.0, 9.0), kind="loss")
    metrics = effects.detection_metrics(effects.detections(run(faults=[lossy], events=[retired(7.0, 6.9, 6.8)])))
    assert (metrics["detection_max_s"], metrics["after_first_loss_max_s"]) == (None, pytest.approx(0.1))


def test_a_retirement_between_issue_and_effect_is_explained():
    assert effects.false_retirements(run(faults=[link_fault("f1", 5.0, 9.0)], events=[retired(4.9995, 4.999)])) == 0


@pytest.mark.parametrize(("t", "false"), [(4.5, 1), (5.5, 0), (9.9, 0), (10.5, 1)])
def test_a_retirement_is_false_outside_of_fault_and_grace(t, false):
    assert effects.false_retirements(run(faults=[link_fault("f1", 5.0, 9.0)], events=[retired(t, t)]), grace_s=1.0) == false


def test_a_fault_on_another_path_explains_nothing():
    assert effects.false_retirements(run(faults=[link_fault("f1", 5.0, 9.0, "t0_1_1-t1_1_2")], events=[retired(6.0, 6.0)])) == 1


def test_a_switch_fault_explains_the_paths_through_it():
    dead = FaultInterval("f1", "switch-kill", "t1_1_1", "switch", "T1", 5.0, 9.0, 5.0, 5.0, 9.0)
    assert effects.blamed(run(faults=[dead]), retired(6.0, 6.0)) == dead


def test_a_switch_whose_name_only_begins_alike_is_not_hit():
    dead = FaultInterval("f1", "switch-kill", "t1_1", "switch", "T1", 5.0, 9.0, 5.0, 5.0, 9.0)
    assert effects.blamed(run(faults=[dead]), retired(6.0, 6.0)) is None


def test_a_retirement_without_a_known_path_accuses_nobody():
    assert effects.false_retirements(run(events=[retired(6.0, 6.0, path=[])])) == 0


def test_detection_without_a_last_packet_is_left_out():
    assert effects.detections(run(faults=[link_fault("f1", 5.0, 9.0)], events=[retired(5.1, None)])) == []


def test_an_unknown_pairs_rtt_is_the_median_of_the_known():
    assert effects.pair_rtt_s(run(agents={"h9": {"base_rtt_s": {"h8": 0.001, "h7": 0.003}}}), effects.SMALLEST_RTT, "h1", "h2") == 0.002


def test_drops_are_those_while_the_fault_was_on():
    counter = LinkCounter("t0_1_1-t1_1_1", "t0_1_1", 0, 0, ((1.0, 4.0), (6.0, 10.0), (9.4, 12.0), (15.0, 40.0)))
    assert effects_of(run(links=[counter], faults=[link_fault("f1", 5.0, 9.0, kind="silent")]))[0].packets_lost == 8.0


def test_what_is_lost_for_want_of_a_carrier_is_not_counted_and_not_called_zero():
    counter = LinkCounter("t0_1_1-t1_1_1", "t0_1_1", 0, 0, ((1.0, 0.0), (15.0, 0.0)))
    assert effects_of(run(links=[counter], faults=[link_fault("f1", 5.0, 9.0, kind="carrier")]))[0].packets_lost is None
    assert effects_of(run(links=[counter], faults=[link_fault("f1", 5.0, 9.0, kind="silent")]))[0].packets_lost == 0.0


def test_no_retirement_no_detection_figure():
    assert set(effects.detection_metrics([]).values()) == {None}


def test_the_base_rtt_is_that_of_idle_probes_where_there_are_any():
    agents = {"h1": {"base_rtt_s": {"h2": 0.002}, "idle_rtt_s": {"h2": 0.005}}}
    found = effects.detections(run(faults=[link_fault("f1", 3.0, 8.0)], events=[retired(3.1, 3.01, 3.0)], agents=agents))[0]
    assert (found.base_rtt_s, found.smallest_rtt_s) == (0.005, 0.002)


# --- did it hit traffic? -----------------------------------------------------------------------------------------------------------------


def counters(*sent: tuple[float, float], dropped: tuple[tuple[float, float], ...] = (), link: str = "t0_1_1-t1_1_1") -> LinkCounter:
    return LinkCounter(link, link.split("-")[0], 0.0, 0.0, dropped, sent)


def hit(*links: LinkCounter, ends: tuple[float, ...] = (1, 2, 3, 4, 8)) -> bool | None:
    arm = run(steps=steps(*ends), faults=[link_fault("f1", 4.5, 5.5)], links=links)
    return effects_of(arm)[0].hit


def test_a_link_that_carried_packets_in_the_step_before_was_hit():
    assert hit(counters((2.0, 0), (3.0, 10), (4.0, 40))) is True


def test_a_link_with_keepalives_only_was_not_hit():
    assert hit(counters((2.0, 2), (3.0, 4), (4.0, 6))) is False


def test_packets_of_a_session_that_came_up_during_a_stall_are_no_traffic():
    assert hit(counters((1.0, 0), (2.0, 0), (4.5, 30)), ends=(1, 2, 8)) is False


def test_a_silent_link_that_swallowed_many_packets_was_hit():
    assert hit(counters((2.0, 0), (4.0, 0), dropped=((4.0, 0), (5.0, 16)))) is True


def test_without_counters_nobody_knows():
    assert hit() is None


def test_a_fault_that_hit_no_traffic_has_no_stall():
    arm = run(steps=steps(1, 2, 3, 4, 8), faults=[link_fault("f1", 4.5, 5.5)], links=[counters((2.0, 0), (4.0, 1))])
    assert (effects_of(arm)[0].stall_s, effects_of(arm)[0].stall_max_s) == (None, None)


def test_a_fault_that_hit_no_traffic_shares_no_stall():
    faults = [link_fault("f1", 4.5, 5.5), link_fault("f2", 4.6, 5.6, target="x-y")]
    links = [counters((3.0, 0), (4.0, 50)), counters((3.0, 0), (4.0, 0), link="x-y")]
    found = effects_of(run(steps=steps(1, 2, 3, 4, 8), faults=faults, links=links))
    assert [(effect.stall_s, effect.overlapping) for effect in found] == [(3.0, False), (None, False)]


def test_groups_count_the_faults_that_hit_nothing_and_leave_them_out_of_medians():
    faults = [link_fault("f1", 4.5, 5.5), link_fault("f2", 4.6, 5.6, target="x-y")]
    links = [counters((3.0, 0), (4.0, 50)), counters((3.0, 0), (4.0, 0), link="x-y")]
    found = effects_of(run(steps=steps(1, 2, 3, 4, 8), faults=faults, links=links))
    group = effects.group_effects(found, lambda effect: effect.kind)["carrier"]
    assert (group["faults"], group["hit"], group["stall_median_s"]) == (2, 1, 3.0)


def test_the_slowest_step_without_a_fault_is_told():
    arm = run(steps=steps(1, 2, 3.4, 4.4, 9, 10), faults=[link_fault("f1", 5.0, 6.0)])
    assert stats.healthy_median(arm, stats.job_steps(arm)).slowest_s == pytest.approx(1.4)
