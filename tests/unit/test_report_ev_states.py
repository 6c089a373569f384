"""What the report makes of EVs that left use for another reason than a loss: ports and the administrator."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.report import effects, plot_evs, plot_faults, plot_paths
from testbed.report.model import ArmRun, FaultInterval

PATH = ["h1-t0_1_1", "t0_1_1-t1_1_1", "h5-t0_1_1"]


def change(t_s: float, before: str, after: str, reason: str | None, ev: int = 0) -> dict[str, Any]:
    """One ev_state event; without a reason as a run before the field existed."""
    told = {"t_s": t_s, "source": "h1", "event": "ev_state", "peer": "h5", "ev": ev, "path": PATH, "from": before, "to": after}
    if reason is not None:
        told |= {"reason": reason, "plane": 1, "last_tx_s": t_s - 0.001, "first_lost_tx_s": None}
    return told


def arm(*events: dict[str, Any], faults: tuple[FaultInterval, ...] = ()) -> ArmRun:
    return ArmRun("mrc", 1, 20.0, faults=faults, events=list(events))


CUT = FaultInterval("f1", "carrier", PATH[0], "link", "NIC-T0", 5.0, 9.0, 5.0, 5.0, 9.0, (PATH[0],), {})


@pytest.mark.parametrize("reason", ["port_down", "peer_port_down"])
def test_an_ev_that_left_with_a_port_is_no_false_retirement(reason: str) -> None:
    assert effects.false_retirements(arm(change(6.0, "GOOD", "ASSUMED_BAD", reason))) == 0


@pytest.mark.parametrize("reason", ["loss_fifo", "loss_rack", "always_skip", None])
def test_an_ev_that_left_for_a_loss_without_a_fault_is_a_false_retirement(reason: str | None) -> None:
    assert effects.false_retirements(arm(change(6.0, "GOOD", "ASSUMED_BAD", reason))) == 1


def test_denial_is_no_retirement() -> None:
    run = arm(change(6.0, "GOOD", "DENIED", "denied"))
    assert (effects.retirements(run), effects.false_retirements(run)) == ([], 0)


def test_a_denied_ev_that_is_allowed_and_must_prove_itself_is_no_retirement() -> None:
    run = arm(change(6.0, "ASSUMED_BAD", "DENIED", "denied"), change(7.0, "DENIED", "ASSUMED_BAD", "allowed"))
    assert (effects.retirements(run), effects.false_retirements(run)) == ([], 0)


def test_leaving_with_the_port_detects_the_fault() -> None:
    (found,) = effects.detections(arm(change(5.004, "GOOD", "ASSUMED_BAD", "port_down"), faults=(CUT,)))
    assert (found.fault, found.ev, found.after_first_loss_s) == ("f1", 0, None)
    assert found.after_effect_s == pytest.approx(0.003)


def test_an_ev_is_denied_from_denial_to_leave_and_bad_before_and_after() -> None:
    run = arm(
        change(2.0, "GOOD", "ASSUMED_BAD", "loss_rack"),
        change(3.0, "ASSUMED_BAD", "DENIED", "denied"),
        change(8.0, "DENIED", "ASSUMED_BAD", "allowed"),
        change(9.0, "ASSUMED_BAD", "GOOD", "probe"),
    )
    events = effects.pair_events(run, ("h1", "h5"))
    assert effects.bad_spans(run, events) == {0: [(2.0, 3.0), (8.0, 9.0)]}
    assert effects.bad_spans(run, events, "DENIED") == {0: [(3.0, 8.0)]}


def of_job(t_s: float, name: str) -> dict[str, Any]:
    return {"t_s": t_s, "source": "run", "event": name}


def test_an_ev_is_bad_no_longer_than_its_qp_lives() -> None:
    run = arm(
        change(5.9, "GOOD", "ASSUMED_BAD", "port_down"),
        of_job(6.0, "job_crash"),
        change(6.01, "GOOD", "ASSUMED_BAD", "peer_port_down", ev=1),  # of an agent that has not heard of the crash
        change(8.0, "GOOD", "DENIED", "denied", ev=1),
        of_job(8.3, "job_restart"),
        change(12.0, "GOOD", "ASSUMED_BAD", "loss_rack"),
        change(13.0, "ASSUMED_BAD", "GOOD", "probe"),
        change(18.0, "GOOD", "ASSUMED_BAD", "loss_rack"),
        of_job(19.0, "job_crash"),
    )
    events = effects.pair_events(run, ("h1", "h5"))
    assert effects.bad_spans(run, events) == {0: [(5.9, 6.0), (12.0, 13.0), (18.0, 19.0)]}
    assert effects.bad_spans(run, events, "DENIED") == {1: [(8.0, 19.0)]}


def test_the_picture_of_one_fault_does_not_call_an_ev_back_whose_job_crashed() -> None:
    run = arm(change(5.9, "GOOD", "ASSUMED_BAD", "port_down"), of_job(6.0, "job_crash"), faults=(CUT,))
    scene = plot_evs.Scene(run, CUT, ("h1", "h5"), (0,), {0: np.zeros(3), 1: np.zeros(3)}, {0: [(5.9, 6.0)]}, {0: []}, [(5.9, 6.0)])
    assert plot_evs._title([scene]).endswith("after its begin, gone with the job's crash")


def test_the_rows_of_a_pair_tell_denial_apart(tmp_path: Path) -> None:
    folder = tmp_path / "mrc" / "1"
    folder.mkdir(parents=True)
    lines = [
        "t_s,host,peer,ev,state,tx_packets,lost_packets,probes_sent",
        *(f"{t},h1,h5,{ev},GOOD,{t},0,0" for t in (1, 2) for ev in (0, 1)),
    ]
    (folder / "paths.csv").write_text("\n".join(lines))
    run = arm(change(6.0, "GOOD", "DENIED", "denied", ev=1))
    _, rows = plot_paths.read_pair(tmp_path, run, ("h1", "h5"))
    assert [(row.bad, row.denied) for row in rows] == [([], []), ([], [(6.0, 20.0)])]


def test_the_legend_and_the_title_name_denial_only_where_the_pair_has_one() -> None:
    run, rows = arm(), [plot_paths.EvRow(0, Counter({1: 5})), plot_paths.EvRow(1)]
    labels = [handle.get_label() for handle in plot_paths._paths_legend([run], rows)]
    assert "DENIED by the administrator" not in labels
    assert plot_paths._paths_title([(run, ("h1", "h5"), rows)]).endswith("MRC 0 (1 EV never used)")
    rows[1].denied.append((0.0, 20.0))
    labels = [handle.get_label() for handle in plot_paths._paths_legend([run], rows)]
    assert "DENIED by the administrator" in labels
    assert plot_paths._paths_title([(run, ("h1", "h5"), rows)]).endswith("MRC 0 (1 EV never used, being denied)")


@pytest.mark.parametrize("rtts", [(None, None), (None, 0.01), (0.01, 0.01)])
def test_the_picture_of_detection_has_room_whatever_round_trips_are_known(rtts: tuple[float | None, ...], recwarn: Any) -> None:
    kinds = ("carrier", "silent")
    told = [{"kind": k, "after_first_loss_s": 0.01, "after_effect_s": 0.02, "base_rtt_s": r} for k, r in zip(kinds, rtts, strict=True)]
    found = {"detection_median_s": {"median": 0.02}, "repeats": [{"detections": told}]}
    figure = plot_faults.detection_times({"arms": {"mrc": defaultdict(dict, found)}}, ["footer"])
    assert figure is not None
    figure.savefig(io.BytesIO())
    widths = [axes.get_position().width for axes in figure.axes]
    assert len(widths) == 1 + any(rtts)
    assert min(widths) > 0.2
    assert not recwarn
