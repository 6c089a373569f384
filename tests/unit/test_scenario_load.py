"""Scenario files: what a good one becomes, overrides, and the messages about bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from docs_blocks import contents

from hosts.rc.params import RcParams
from testbed.errors import UsageError
from testbed.report.metrics import ARMS_OF, METRIC_NAMES
from testbed.run.plan import fabric_options
from testbed.scenario import ScenarioInvalid, draw, load, load_text
from testbed.scenario.builtin import find, names
from testbed.scenario.derived_links import RC_WINDOW_PACKETS

GOLDEN = Path(__file__).parent / "scenario_messages"
GOOD = """\
name: good
topology: {kind: fat-tree, k: 4}
job: {hosts: [h1, h5, h9, h13]}
run: {duration: 60s, warmup: 5s, settle: 5s}
faults:
  - {kind: carrier, link: t0_1_1-t1_1_1, at: 10s, for: 5s}
  - {kind: switch-kill, switch: t2_1, at: 20s, for: 5s}
"""


SWITCHES = {"ecn": True, "trimming": True, "base_rtt_s": 0.004, "loss": {}}


def problems(text: str, *overrides: str) -> dict[str, str]:
    with pytest.raises(ScenarioInvalid) as caught:
        load_text(text, overrides)
    return {problem.as_dict()["place"]: problem.message for problem in caught.value.problems}


def test_defaults_are_filled_in() -> None:
    scenario = load_text(GOOD)
    assert (scenario.links.rate_bps, scenario.links.mtu_bytes, scenario.arms, scenario.repeats) == (10e6, 4352, ("mrc", "rc-bgp"), 1)


def test_a_queue_too_short_for_the_thresholds_says_what_to_do() -> None:
    assert "make the queue longer, or switch ecn and trimming off" in problems(GOOD, "links.queue=16KiB")["$.links"]
    assert load_text(GOOD, ["links.queue=16KiB", "arms=[rc-bgp]"]).queue_bytes == 16384


def test_each_arm_has_its_links() -> None:
    scenario = load_text(GOOD, ["links.loss.NIC-T0=1%"])
    mrc, no_trim, routed = (scenario.link_settings(arm) for arm in ("mrc", "mrc-no-trim", "rc-bgp"))
    assert [(links.ecn, links.trimming, links.tail_drop) for links in (mrc, no_trim, routed)] == [
        (True, True, False),
        (True, False, True),
        (False, False, False),
    ]
    assert mrc.depth_bytes(last_hop=True) == no_trim.depth_bytes(last_hop=True) > mrc.depth_bytes(last_hop=False)
    assert mrc.loss == no_trim.loss == routed.loss == {"NIC-T0": 0.01}


def test_repeats_draw_other_chances() -> None:
    scenario = load_text(GOOD)
    assert scenario.link_settings("mrc", 1).seed == scenario.link_settings("rc-bgp", 1).seed != scenario.link_settings("mrc", 2).seed


def test_switches_may_do_neither_ecn_nor_trimming() -> None:
    settings = load_text(GOOD, ["links.ecn=false", "links.trimming=false"]).link_settings("mrc")
    assert (settings.ecn, settings.trimming, settings.tail_drop, settings.ecn_bytes) == (False, False, True, (0, 0))


@pytest.mark.parametrize("share", ["1%", "0.01"])
def test_loss_is_a_share(share: str) -> None:
    assert load_text(GOOD, [f"links.loss.T0-T1={share}"]).links.loss == {"T0-T1": 0.01}


@pytest.mark.parametrize("share", ["1e-12", "0.00000000001%"])
def test_a_loss_that_would_be_none_is_refused(share: str) -> None:
    assert problems(GOOD, f"links.loss.T0-T1={share}").keys() == {"$.links.loss.T0-T1"}


def test_a_tier_without_links_has_no_loss() -> None:
    two_tiers = "topology={kind: multi-plane, planes: 1, t0s: 2, t1s: 1, hosts_per_t0: 1}"
    assert "$.links.loss.T1-T2" in problems(GOOD, two_tiers, "links.loss.T1-T2=1%")


def test_units_become_si() -> None:
    scenario = load_text(GOOD, ["links.rate=1Gbit/s", "job.vector=1MiB", "job.compute=250ms"])
    assert (scenario.links.rate_bps, scenario.job.vector_bytes, scenario.job.compute_s) == (1e9, 2**20, 0.25)


def test_the_derived_queue_holds_the_windows_of_eight_rc_senders() -> None:
    scenario = load_text(GOOD)
    assert scenario.queue_bytes == 8 * 16 * 4352


@pytest.mark.parametrize("override", ["links.rate=1bps", "links.rate=1Tbps", "links.mtu=9300B", "links.queue=100B"])
def test_what_no_link_can_be_is_refused_before_the_run(override: str) -> None:
    assert problems(GOOD, override).keys() >= {"$.links"}


def test_a_packet_that_does_not_fit_the_mtu_is_refused_before_the_run() -> None:
    assert problems(GOOD, "links.mtu=1500B").keys() == {"$.transport.mrc.payload_bytes", "$.transport.rc.payload_bytes"}


def test_only_the_transports_of_the_arms_must_fit() -> None:
    assert problems(GOOD, "links.mtu=1500B", "arms=[mrc]").keys() == {"$.transport.mrc.payload_bytes"}


@pytest.mark.parametrize(("payload", "arms", "fits"), [(1408, "mrc-bgp", True), (1412, "mrc-bgp", False), (1408, "mrc-bgp, mrc", False)])
def test_mrc_without_an_outer_header_has_room_for_more(payload: int, arms: str, fits: bool) -> None:
    overrides = ["links.mtu=1500B", f"transport.mrc.payload_bytes={payload}", f"arms=[{arms}]"]
    if fits:
        assert load_text(GOOD, overrides).transport["mrc"] == {"payload_bytes": payload}
    else:
        assert problems(GOOD, *overrides).keys() == {"$.transport.mrc.payload_bytes"}


def test_the_advised_payload_fits_the_mtu() -> None:
    overrides = ["links.mtu=1500B", "transport.mrc.payload_bytes=1368", "transport.rc.payload_bytes=1416"]
    assert load_text(GOOD, overrides).transport == {"mrc": {"payload_bytes": 1368}, "rc": {"payload_bytes": 1416}, "tcp": {}}


def test_the_base_rtt_does_not_depend_on_the_rate() -> None:
    """Links do not store and forward: benchmarks/base_rtt.py."""
    assert {load_text(GOOD, [f"links.rate={rate}"]).link_settings("mrc").base_rtt_s for rate in ("1Mbps", "100Mbps")} == {0.004}


@pytest.mark.parametrize("base_rtt", ["10us", "1ms", "1s"])
@pytest.mark.parametrize("rate", ["100kbps", "10Mbps", "1Gbps", "30Gbps"])
def test_a_derived_queue_is_never_too_short_for_its_thresholds(rate: str, base_rtt: str) -> None:
    settings = load_text(GOOD, [f"links.rate={rate}", f"links.base_rtt={base_rtt}"]).link_settings("mrc")
    assert settings.queue_bytes >= settings.least_queue_bytes


def test_an_asked_queue_is_taken() -> None:
    assert load_text(GOOD, ["links.queue=128KiB"]).queue_bytes == 131072


def test_all_hosts_are_those_of_the_topology() -> None:
    assert len(load_text(GOOD, ["job.hosts=all"]).job_hosts()) == 16


def test_resolved_is_json_with_units_in_its_keys() -> None:
    resolved = json.loads(json.dumps(load_text(GOOD).resolved()))
    assert resolved["links"] == {"rate_bps": 10e6, "mtu_bytes": 4352, "queue_bytes": 557056} | SWITCHES
    assert resolved["faults"][0] == {"kind": "carrier", "link": "t0_1_1-t1_1_1", "at_s": 10.0, "for_s": 5.0}


def test_resolved_churn_has_its_window() -> None:
    scenario = load_text(GOOD, ["faults=[{churn: {tiers: {T0-T1: {cuts_per_minute: 6}}}}]"])
    churn = scenario.resolved()["faults"][0]["churn"]
    assert (churn["from_s"], churn["to_s"]) == (5.0, 55.0)


def test_the_text_is_kept_as_given() -> None:
    assert load_text(GOOD).source == GOOD


def test_a_link_may_be_named_from_either_end() -> None:
    assert load_text(GOOD, ["faults[0].link=t1_1_1-t0_1_1"])


def test_overrides_reach_into_lists() -> None:
    assert load_text(GOOD, ["faults[0].at=12s"]).faults[0].at_s == 12.0


def test_an_override_may_make_a_section() -> None:
    assert load_text(GOOD, ["links.rate=20Mbps"]).links.rate_bps == 20e6


@pytest.mark.parametrize(
    "override", ["jobvector", "=3", "faults[x].at=3s", "a..b=1", "faults[7].at=3s", "name.x=1", "job.vector={", "job[0]=1"]
)
def test_a_bad_override_is_refused(override: str) -> None:
    with pytest.raises(ScenarioInvalid, match="--set"):
        load_text(GOOD, [override])


def test_an_overridden_value_has_no_line() -> None:
    with pytest.raises(ScenarioInvalid) as caught:
        load_text(GOOD, ["faults[0].at=1s"])
    assert [problem.line for problem in caught.value.problems] == [None]


def test_a_profile_of_bgp_and_what_overrides_it_come_through() -> None:
    scenario = load_text(GOOD, ["bgp.profile=traditional", "bgp.hold_s=200"])
    assert scenario.bgp == scenario.resolved()["bgp"] == {"profile": "traditional", "hold_s": 200}
    options = fabric_options(scenario, "rc-bgp")["bgp"]
    assert (options.keepalive_s, options.hold_s) == (60, 200)


def test_what_overrides_a_profile_is_checked_against_the_profile() -> None:
    """Keepalives every 60 s do not fit a hold time of 100 s."""
    assert "keepalive_s is 60" in problems(GOOD, "bgp.profile=traditional", "bgp.hold_s=100")["$.bgp"]


def test_profiles_can_be_swept() -> None:
    sweep = 'sweep={"key": "bgp.profile", "values": ["datacenter", "traditional-bfd-50x3"]}'
    assert [single.bgp["profile"] for single in load_text(GOOD, [sweep]).single_runs()] == ["datacenter", "traditional-bfd-50x3"]


def test_a_parameter_of_bgp_is_checked_by_its_owner() -> None:
    assert "hold_s" in problems(GOOD, "bgp.hold_s=1")["$.bgp"]


def test_transport_parameters_are_handed_on() -> None:
    assert load_text(GOOD, ["transport.rc.retries=3"]).transport["rc"] == {"retries": 3}


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("run.duration=8s", "$.run.duration"),
        ("job.hosts=[h1, h1]", "$.job.hosts[1]"),
        ("job.hosts=[h1]", "$.job.hosts"),
        ("job.hosts=[h1, t0_1_1]", "$.job.hosts[1]"),
        ("job.vector=10B", "$.job.vector"),
        ("job.checkpoint_every=0", "$.job.checkpoint_every"),
        ("job.ring=star", "$.job.ring"),
        ("topology.k=5", "$.topology"),
        ("topology.k=400", "$.topology.k"),
        ("topology.kind=ring", "$.topology.kind"),
        ("topology={kind: multi-plane, planes: 2, t0s: 2, t1s: 2}", "$.topology"),
        ("links.mtu=100B", "$.links.mtu"),
        ("links.rate=0bps", "$.links.rate"),
        ("arms=[mrc, mrc]", "$.arms[1]"),
        ("arms=[]", "$.arms"),
        ("arms=mrc", "$.arms"),
        ("repeats=0", "$.repeats"),
        ("repeats=true", "$.repeats"),
        ("seed=-1", "$.seed"),
        ("seed=1.5", "$.seed"),
        ("name=../x", "$.name"),
        ("name=5", "$.name"),
        ("faults[0].for=50s", "$.faults[0].for"),
        ("faults[0].at=100s", "$.faults[0].at"),
        ("faults[0].at=3s", "$.faults[0].at"),
        ("faults[0].kind=carier", "$.faults[0].kind"),
        ("faults[0]={link: a}", "$.faults[0]"),
        ("faults[0]=cut", "$.faults[0]"),
        ("faults={}", "$.faults"),
        ("faults[1].switch=t2_9", "$.faults[1].switch"),
        ("faults[1].switch=h1", "$.faults[1].switch"),
        ("faults[1]={kind: silent, link: t0_1_1-t1_1_1, at: 14s, for: 1s}", "$.faults[1]"),
        ("faults[1]={kind: switch-kill, switch: t0_1_1, at: 14s, for: 1s}", "$.faults[1]"),
        ("faults[0]={churn: {tiers: {}}}", "$.faults[0].churn.tiers"),
        ("faults[0]={churn: {tiers: {T0-T9: {cuts_per_minute: 1}}}}", "$.faults[0].churn.tiers.T0-T9"),
        ("faults[0]={churn: {tiers: {T0-T1: {cuts_per_minute: 1}}, kinds: {carrier: 0}}}", "$.faults[0].churn.kinds"),
        ("faults[0]={churn: {tiers: {T0-T1: {cuts_per_minute: 1}}, from: 1s}}", "$.faults[0].churn.from"),
        ("faults[0]={churn: {tiers: {T0-T1: {cuts_per_minute: 1}}, to: 59s}}", "$.faults[0].churn.to"),
        ("faults[0]={churn: {tiers: {T0-T1: {cuts_per_minute: 1}}, down: {distribution: unifrm}}}", "$.faults[0].churn.down.distribution"),
        (
            "faults[0]={churn: {tiers: {T0-T1: {cuts_per_minute: 1}}, down: {distribution: uniform, min: 5s, max: 1s}}}",
            "$.faults[0].churn.down.max",
        ),
        ("faults[0]={churn: {tiers: {T0-T1: {cuts_per_minute: 999999}}}}", "$.faults[0].churn.tiers"),
        ("expect=[{arm: mrc, metric: crashes}]", "$.expect[0]"),
        ("expect=[{arm: mrc, metric: crases, equals: 0}]", "$.expect[0].metric"),
        ("expect=[{arm: tcp, metric: crashes, equals: 0}]", "$.expect[0].arm"),
        ("expect=[{arm: mrc, metric: jain, at_least: 0.9}]", "$.expect[0].metric"),
        ("expect=[{arm: mrc, metric: crashes, at_most: .nan}]", "$.expect[0].at_most"),
        ("transport.rc.retrys=3", "$.transport.rc.retrys"),
        ("transport.rc.retries=three", "$.transport.rc.retries"),
        ("transport.udp={}", "$.transport.udp"),
        ("bgp.hold=3", "$.bgp.hold"),
        ("bgp.profile=isp", "$.bgp.profile"),
        ("hypotesis=x", "$.hypotesis"),
    ],
)
def test_a_mistake_is_told_with_its_place(override: str, place: str) -> None:
    assert place in problems(GOOD, override)


def test_a_loss_of_evs_that_no_pair_has_is_refused() -> None:
    loss = "faults=[{kind: loss, link: t0_1_1-t1_1_1, share: 5%, evs: [3, 4, 9], at: 10s, for: 5s}]"
    assert problems(GOOD, loss) == {"$.faults[0].evs": "no pair has EV 4, 9: they are numbered from 0 to 3"}
    assert problems(GOOD, loss, "transport.mrc.evs=5") == {"$.faults[0].evs": "no pair has EV 9: they are numbered from 0 to 7"}
    assert load_text(GOOD, [loss, "transport.mrc.evs=9"]).transport["mrc"]["evs"] == 9


def test_the_evs_that_a_loss_may_name_are_those_of_all_qps_of_a_pair_and_no_more_than_mrc_has() -> None:
    loss = "faults=[{kind: loss, link: t0_1_1-t1_1_1, share: 5%, evs: [7, 11], at: 10s, for: 5s}]"
    assert problems(GOOD, loss, "transport.mrc.qps=2") == {"$.faults[0].evs": "no pair has EV 11: they are numbered from 0 to 7"}
    assert load_text(GOOD, [loss, "transport.mrc.qps=3"])
    planes = ["topology={kind: multi-plane, planes: 3, t0s: 2, t1s: 1, hosts_per_t0: 2}", "job.hosts=all", "transport.mrc.evs=256"]
    most = "faults=[{kind: loss, link: t0_1_1-t1_1_1, share: 5%, evs: [254, 255], at: 10s, for: 5s}]"
    assert problems(GOOD, most, *planes) == {"$.faults[0].evs": "no pair has EV 255: they are numbered from 0 to 254"}


@pytest.mark.parametrize(("metric", "needs"), [("step_p50_s", "a job of steps"), ("victim_share", "an incast")])
def test_a_metric_that_streams_cannot_have_is_refused(metric: str, needs: str) -> None:
    entries = f"{{arm: mrc, metric: jain, at_least: 0}}, {{arm: mrc, metric: {metric}, at_least: 0}}"
    found = problems(GOOD, "job={kind: streams, pattern: permutation}", f"expect=[{entries}]")
    assert found == {"$.expect[1].metric": f"{metric} is measured of {needs} only, so it could never be met"}


@pytest.mark.parametrize(
    ("arm", "metric"),
    [
        ("mrc", "bgp_updates"),
        ("rc-static", "fib_changes"),
        ("rc-bgp", "tables_unchanged"),
        ("mrc-bgp", "detection_max_s"),
        ("rc-bgp", "retirements"),
    ],
)
def test_a_metric_that_an_arm_cannot_have_is_refused_before_it_runs(arm: str, metric: str) -> None:
    found = problems(GOOD, "arms=[mrc, mrc-bgp, rc-bgp, rc-static]", f"expect=[{{arm: {arm}, metric: {metric}, at_least: 0}}]")
    assert list(found) == ["$.expect[0].arm"]
    assert "could never be met" in found["$.expect[0].arm"]


@pytest.mark.parametrize(
    ("arm", "metric"), [("rc-bgp-ovs", "session_losses"), ("mrc-bgp", "retirements"), ("rc-static", "tables_unchanged")]
)
def test_a_metric_that_an_arm_has_is_taken(arm: str, metric: str) -> None:
    assert load_text(GOOD, [f"arms=[{arm}]", f"expect=[{{arm: {arm}, metric: {metric}, at_least: 0}}]"])


def test_every_metric_of_some_arms_exists() -> None:
    for _, arms, beginnings in ARMS_OF:
        assert arms
        assert all(any(metric.startswith(name) for metric in METRIC_NAMES) for name in beginnings)


def test_a_tier_that_the_topology_lacks_is_refused() -> None:
    text = GOOD.replace("{kind: fat-tree, k: 4}", "{kind: multi-plane, planes: 2, t0s: 2, t1s: 2, hosts_per_t0: 2}")
    found = problems(text, "job.hosts=all", "faults=[{churn: {tiers: {T1-T2: {cuts_per_minute: 1}}}}]")
    assert found == {"$.faults[0].churn.tiers.T1-T2": "this multi-plane has no T1-T2 links"}


def test_faults_that_touch_in_time_do_not_overlap() -> None:
    assert load_text(GOOD, ["faults[1]={kind: silent, link: t0_1_1-t1_1_1, at: 15s, for: 1s}"])


@pytest.mark.parametrize("case", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_messages_are_as_agreed(case: str) -> None:
    text = (GOLDEN / f"{case}.yaml").read_text(encoding="utf-8")
    with pytest.raises(ScenarioInvalid) as caught:
        load_text(text, source=f"{case}.yaml")
    assert str(caught.value) + "\n" == (GOLDEN / f"{case}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(names()))
def test_every_scenario_of_the_testbed_is_valid(name: str) -> None:
    scenario = load(find(name))
    assert scenario.name == name
    assert scenario.title
    assert scenario.hypothesis
    assert scenario.expect


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScenarioInvalid, match="does not exist"):
        load(tmp_path / "no.yaml")


def test_a_folder_is_no_scenario(tmp_path: Path) -> None:
    with pytest.raises(ScenarioInvalid, match="is not a file"):
        load(tmp_path)


def test_bytes_that_are_not_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(ScenarioInvalid, match="UTF-8"):
        load(path)


def test_an_unknown_name_has_a_hint() -> None:
    with pytest.raises(UsageError, match="did you mean `quick`"):
        find("quik")


def test_the_documented_scenario_is_valid(repo_root: Path) -> None:
    first, *fault_lists = (text for text in contents(repo_root, "scenarios.md", "yaml") if "faults:" in text)
    assert load_text(first).name == "my-cut"
    assert len(fault_lists) == 2
    for faults in fault_lists:
        head = first.partition("faults:")[0].replace("duration: 40s", "duration: 100s").replace("warmup: 8s", "warmup: 5s")
        assert draw(load_text(head + faults)).faults


def test_the_derived_queue_knows_rcs_default_window() -> None:
    assert RcParams().window_packets == RC_WINDOW_PACKETS


def test_generators_together_draw_no_more_cuts_than_one_may() -> None:
    churn = "{churn: {tiers: {T0-T1: {cuts_per_minute: 1200}}}}"  # 1000 cuts in 50 s
    text = GOOD.split("faults:")[0]
    load_text(text, [f"faults=[{churn}, {churn}]"])
    assert "about 3000 cuts" in problems(text, f"faults=[{churn}, {churn}, {churn}, {churn}]")["$.faults[2].churn.tiers"]
