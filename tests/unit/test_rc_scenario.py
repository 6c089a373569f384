"""What a scenario may say of RC: presets, their sweep, DCQCN and what it asks of the links."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from testbed.errors import UsageError
from testbed.fabric.link_parameters import of_settings
from testbed.run.plan import given_parameters, transport_parameters
from testbed.scenario import ScenarioInvalid, load_text

GOOD = """\
name: good
topology: {kind: fat-tree, k: 4}
job: {hosts: [h1, h5, h9, h13]}
run: {duration: 60s, warmup: 5s, settle: 5s}
arms: [rc-bgp, rc-static, mrc]
"""
SWEEP = "sweep: {key: transport.rc.preset, values: [nccl-18x7, nccl-20x7, fast]}\n"


def problems(text: str, *overrides: str) -> dict[str, str]:
    with pytest.raises(ScenarioInvalid) as caught:
        load_text(text, overrides)
    return {problem.as_dict()["place"]: problem.message for problem in caught.value.problems}


def test_presets_can_be_swept_and_are_told_resolved() -> None:
    singles = load_text(GOOD + SWEEP).single_runs()
    told = [transport_parameters(single, "rc-bgp") for single in singles]
    assert [(each["preset"], each["timeout_exponent"], each["retries"]) for each in told] == [
        ("nccl-18x7", 18, 7), ("nccl-20x7", 20, 7), ("fast", 16, 7),
    ]  # fmt: skip


def test_what_is_given_goes_before_the_preset() -> None:
    told = transport_parameters(load_text(GOOD, ["transport.rc.preset=fast", "transport.rc.retries=2"]), "rc-bgp")
    assert (told["timeout_exponent"], told["retries"]) == (16, 2)


def test_unknown_preset_is_told_with_its_place() -> None:
    assert "did you mean 'nccl-18x7'" in problems(GOOD, "transport.rc.preset=nccl-18")["$.transport.rc"]
    assert "preset is 'slow'" in problems(GOOD + SWEEP.replace("fast", "slow"))["$.sweep.values[2]"]


@pytest.mark.parametrize("value", ["0", "17", "true", "4.5"])
def test_impossible_number_of_qps_is_refused(value: str) -> None:
    assert problems(GOOD, f"transport.rc.qps={value}").keys() <= {"$.transport.rc", "$.transport.rc.qps"}


def test_a_window_too_small_for_the_rest_is_named() -> None:
    assert "1 to 2 (half of window_packets)" in problems(GOOD, "transport.rc.window_packets=4")["$.transport.rc"]


@pytest.mark.parametrize("place", ["transport.rc.preset", "transport.tcp.connections", "bgp.hold_s", "bgp_ovs.bfd_multiplier"])
@pytest.mark.parametrize("value", ["null", "[1]", "{a: 1}"])
def test_what_is_no_value_is_one_problem_at_its_place(place: str, value: str) -> None:
    told = problems(GOOD, f"{place}={value}")
    assert told == {f"$.{place}": "must be one value: a number, a text, true or false"}


def test_a_text_without_end_is_not_repeated() -> None:
    assert problems(GOOD, f"transport.rc.preset={'x' * 10_000}") == {"$.transport.rc.preset": "must have at most 100 characters"}


def test_agents_know_the_links_rate() -> None:
    assert given_parameters(load_text(GOOD, ["links.rate=20Mbps"]), "rc-bgp")["link_rate_bps"] == 20e6


@pytest.mark.parametrize("arm", ["rc-bgp", "rc-static"])
def test_links_of_rc_mark_with_dcqcn_only_and_keep_their_queues(arm: str) -> None:
    plain, marking = (load_text(GOOD, [f"transport.rc.dcqcn={on}"]).link_settings(arm) for on in ("false", "true"))
    mrc = load_text(GOOD).link_settings("mrc")
    assert (plain.ecn, plain.last_hop_marks) == (False, False)
    assert (marking.ecn, marking.last_hop_marks, marking.trimming, marking.queue_bytes) == (True, True, False, plain.queue_bytes)
    assert marking.ecn_bytes == mrc.ecn_bytes


def test_links_of_mrc_are_the_same_with_dcqcn() -> None:
    assert load_text(GOOD, ["transport.rc.dcqcn=true"]).link_settings("mrc") == load_text(GOOD).link_settings("mrc")


def test_links_to_hosts_mark_with_dcqcn() -> None:
    settings = load_text(GOOD, ["transport.rc.dcqcn=true"]).link_settings("rc-bgp")
    told = asdict(of_settings(settings, "last_hop"))
    assert told == asdict(of_settings(settings, "fabric"))
    assert told["last_hop"] is False
    assert of_settings(replace(settings, last_hop_marks=False), "last_hop").last_hop is True


def test_trimming_links_to_hosts_do_not_mark() -> None:
    settings = load_text(GOOD).link_settings("mrc")
    with pytest.raises(UsageError, match="last_hop_marks"):
        replace(settings, last_hop_marks=True)


def test_dcqcn_without_marks_is_refused() -> None:
    assert problems(GOOD, "transport.rc.dcqcn=true", "links.ecn=false").keys() == {"$.transport.rc.dcqcn"}


def test_dcqcn_without_the_links_rate_is_refused() -> None:
    given = ["transport.rc.dcqcn=true", "transport.rc.link_rate_bps=0"]
    assert problems(GOOD, *given).keys() == {"$.transport.rc.link_rate_bps"}
    assert given_parameters(load_text(GOOD, given[:1]), "rc-bgp")["link_rate_bps"] == 10e6


def test_dcqcn_with_a_queue_shorter_than_its_thresholds_is_refused() -> None:
    overrides = ["arms=[rc-bgp]", "links.queue=32KiB"]
    assert load_text(GOOD, overrides).queue_bytes == 32768
    assert "ECN or trimming" in problems(GOOD, *overrides, "transport.rc.dcqcn=true")["$.links"]
