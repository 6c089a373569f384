"""What each side was allowed, arm beside arm, and where each value comes from: scenario, profile, preset or default. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from testbed.pathvector.options import PRESETS, BgpOvsOptions
from testbed.report import context
from testbed.report.context import TRANSPORT_OF_ARM, rc_timeout_s, transport_parameters
from testbed.report.link_table import ROLE_NAMES
from testbed.report.model import ArmRun
from testbed.report.reading import RunData
from testbed.report.routing_words import bfd_s, bgp_parameters, tables
from testbed.routing.options import PROFILES, BgpOptions
from testbed.routing.sysctl import SEED
from testbed.scenario.derived_links import SWITCHING_OF_ARM

NOTHING = "–"
RC_PRESET_SETS = ("timeout_exponent", "retries")


@dataclass(frozen=True)
class Cell:
    """A value for people and where it comes from; no source where it follows from the arm itself."""

    value: str
    source: str = ""


@dataclass(frozen=True)
class Side:
    """One arm, with everything that the rows are made of."""

    run: ArmRun
    scenario: Mapping[str, Any]
    transport: Mapping[str, Any]
    bgp: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """mrc, rc, tcp; empty for an arm that nobody knows."""
        return TRANSPORT_OF_ARM.get(self.run.arm, "")

    @property
    def switching(self) -> str:
        """ovs, frr, ovs-bgp, ovs-ecmp; empty for an arm that nobody knows."""
        return SWITCHING_OF_ARM.get(self.run.arm, "")

    def given(self, *section: str) -> Mapping[str, Any]:
        """A section of the scenario; empty if it has none."""
        found: Any = self.scenario
        for name in section:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}


def allowed_rows(data: RunData) -> list[tuple[str, list[Cell]]]:
    """(what, one cell an arm); rows that no arm fills are left out."""
    sides = [Side(run, data.scenario, transport_parameters(run), bgp_parameters(run)) for run in context.first_runs(data)]
    rows = [(what, [read(side) for side in sides]) for what, read in ROWS.items()]
    return [(what, cells) for what, cells in rows if any(cell.value != NOTHING for cell in cells)]


# --- where a value comes from ------------------------------------------------------------------------------------------------------------


def transport_source(side: Side, *names: str) -> str:
    """Of a transport's parameters: the first place that set any of them."""
    given, preset = side.given("transport", side.kind), side.transport.get("preset")
    if any(name in given for name in names):
        return "scenario"
    if preset and set(names) & set(RC_PRESET_SETS):
        return f"preset {preset}" + (", set by the scenario" if "preset" in given else "")
    return "default"


def bgp_source(side: Side, *names: str) -> str:
    """Of BGP's options: the scenario, if it sets any of them, else the profile (FRR) or preset (controller) that does, else the default.

    Nothing of a value that is none of these: a run of another revision, whose profile or default was another.
    """
    word, sets, kind = ("preset", PRESETS, BgpOvsOptions) if side.switching == "ovs-bgp" else ("profile", PROFILES, BgpOptions)
    given, named = side.given(SECTIONS.get(side.switching, "")), str(side.bgp.get(word, ""))
    values: dict[str, Any] = {name: side.bgp[name] for name in names if name in side.bgp}
    if any(name in given for name in values):
        return "scenario"
    by_name: Mapping[str, Any] = sets.get(named, {})
    own = {field.name: field.default for field in fields(kind)}
    if any(value != by_name.get(name, own.get(name)) for name, value in values.items()):
        return ""
    return f"{word} {named}" if set(values) & set(by_name) else "default"


SECTIONS: Mapping[str, str] = {"frr": "bgp", "ovs-bgp": "bgp_ovs", "ovs-ecmp": "bgp_ovs"}


# --- rows --------------------------------------------------------------------------------------------------------------------------------


def _datapath(side: Side) -> Cell:
    return Cell(context.datapath(side.run))


def _path_choice(side: Side) -> Cell:
    if side.switching == "ovs":
        return Cell("the sender names each whole path (uSID); no hash")
    hashed = next((table for table in tables(side.run.info.get("fabric")) if "bases" in table and "fields" in table), {})
    known: dict[str, Any] = {"hash_policy": hashed.get("fields"), "ecmp_seed": hashed.get("seed"), **side.bgp}
    if _has_no_seed(side):
        known |= {"ecmp_seed": "none, this kernel has none for a router"}
    shown = [f"{words} {known[name]}" for name, words in _HASH.items() if known.get(name) is not None]
    return Cell(", ".join(["ECMP", *shown]), bgp_source(side, *_HASH) if shown else "") if side.switching else Cell(NOTHING)


def _has_no_seed(side: Side) -> bool:
    """Whether the kernel settings that were read back from the routers lack the hash seed: Linux has it since 6.11."""
    told: Mapping[str, Any] = next(
        (table["sysctls"] for table in tables(side.run.info.get("fabric")) if isinstance(table.get("sysctls"), Mapping)), {}
    )
    return bool(told) and not any(SEED in found for found in told.values() if isinstance(found, Mapping))


_HASH = {"hash_policy": "hash", "ecmp_seed": "seed", "ecmp_width": "next hops at most"}


def _flows(side: Side) -> Cell:
    names = {"mrc": ("qps", "evs"), "rc": ("qps",), "tcp": ("connections",)}.get(side.kind, ())
    shown = [_count(name, side.transport[name]) for name in names if side.transport.get(name) is not None]
    if side.kind == "rc" and not shown:
        return Cell("1 QP")
    return Cell(", ".join(shown), transport_source(side, *names)) if shown else Cell(NOTHING)


def _count(name: str, value: Any) -> str:
    if name == "evs":
        return "EVs: as the paths need" if value == 0 else f"{value} EVs a QP"
    return f"{value} {'QP' if name == 'qps' else 'connection'}{'' if value == 1 else 's'}"


def _give_up(side: Side) -> Cell:
    retries = side.transport.get("retries")
    timeout_s = rc_timeout_s(side.run)
    if timeout_s is not None and isinstance(retries, int):
        value = f"ACK timeout {timeout_s:.3g} s, {retries} retries: the QP fails after {timeout_s * (retries + 1):.3g} s"
        return Cell(value, transport_source(side, "timeout_exponent", "retries"))
    if side.kind == "mrc" and (told := context.mrc_retries(side.transport)):
        return Cell(told[0], transport_source(side, "ack_timeout_exponent", "linear_retries", "exponential_retries"))
    if side.kind == "tcp" and (limit_s := side.transport.get("user_timeout_s")) is not None:
        return Cell(f"user timeout {limit_s:g} s" if limit_s else "the kernel's retries, minutes", transport_source(side, "user_timeout_s"))
    return Cell(NOTHING)


def _probe_timeout(side: Side) -> Cell:
    least_s = side.transport.get("pto_min_s") if side.kind == "mrc" else None
    return Cell(NOTHING) if least_s is None else Cell(f"from {least_s:g} s, by measured round trips", transport_source(side, "pto_min_s"))


def _option(names: tuple[str, ...], unit: str, side: Side) -> Cell:
    found = next((name for name in names if isinstance(side.bgp.get(name), int | float)), None)
    return Cell(f"{side.bgp[found]:g} {unit}", bgp_source(side, found)) if found else Cell(NOTHING)


def _profile(side: Side) -> Cell:
    name = next((word for word in ("profile", "preset") if side.bgp.get(word)), "")
    usual = {"profile": BgpOptions.profile, "preset": BgpOvsOptions.preset}.get(name)
    return Cell(str(side.bgp[name]), "default" if side.bgp[name] == usual else "scenario") if name else Cell(NOTHING)


def _bfd(side: Side) -> Cell:
    if not side.bgp:
        return Cell(NOTHING)
    total_s = bfd_s(side.bgp)
    return Cell(f"{total_s:g} s without a packet" if total_s else "off", bgp_source(side, "bfd_interval_ms", "bfd_interval_s"))


def _controller(side: Side) -> Cell:
    shown = [f"{words} {side.bgp[name]:g} s" for name, words in _DELAYS.items() if isinstance(side.bgp.get(name), int | float)]
    return Cell(", ".join(shown), bgp_source(side, *_DELAYS)) if shown else Cell(NOTHING)


_DELAYS = {
    "carrier_delay_s": "carrier", "process_s": "a message", "batch_s": "a decision", "fib_base_s": "tables", "fib_prefix_s": "a prefix",
}  # fmt: skip


def _queue(side: Side) -> Cell:
    fabric = side.run.info.get("fabric")
    size = fabric.get("queue_bytes") if isinstance(fabric, Mapping) else None
    return Cell(f"{size:,.0f} B") if isinstance(size, int | float) else Cell(NOTHING)


def _marks(field: str, side: Side) -> Cell:
    """Whether switches mark or trim: the thresholds that the link program was given."""
    fabric = side.run.info.get("fabric")
    if not isinstance(fabric, Mapping):
        return Cell(NOTHING)
    program = fabric.get("link_program")
    roles = [program.get(role) for role in ROLE_NAMES] if isinstance(program, Mapping) else []
    found = [role[field] for role in roles if isinstance(role, Mapping) and role.get(field)]
    return Cell(f"from {min(found):,.0f} B in the queue" if found else "off")


ROWS: Mapping[str, Callable[[Side], Cell]] = {
    "datapath": _datapath,
    "choice of paths": _path_choice,
    "flows a pair": _flows,
    "transport gives up": _give_up,
    "probe timeout": _probe_timeout,
    "BGP profile or preset": _profile,
    "keepalive": partial(_option, ("keepalive_s",), "s"),
    "hold time": partial(_option, ("hold_s",), "s"),
    "BFD": _bfd,
    "MRAI": partial(_option, ("advertisement_interval_s", "mrai_s"), "s"),
    "controller's delays": _controller,
    "data queue of a link": _queue,
    "switches trim": partial(_marks, "trim_bytes"),
    "switches mark (ECN)": partial(_marks, "ecn_min_bytes"),
}
