"""What the report says of denied EVs: the scenario's denylist, who ignored it, and what an administrator did during the run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.report.context import label
from testbed.report.model import ArmRun, Event
from testbed.report.reading import RunData
from testbed.scenario.deny import deny_text, no_evs_text
from testbed.units import counted

MOST_COMMANDS = 20  # of an arm and repeat; the history has them all


def sentences(data: RunData) -> list[str]:
    """One for the scenario's denylist, one an arm and repeat in which an administrator did anything."""
    return [*_of_scenario(data), *filter(None, (_of_run(run) for runs in data.arms.values() for run in runs))]


def _of_scenario(data: RunData) -> Iterator[str]:
    deny = data.scenario.get("deny")
    if not isinstance(deny, Mapping) or not (told := deny_text(deny)):
        return
    ignoring = deny.get("ignored_by")
    arms = [label(str(arm)) for arm in ignoring if str(arm) in data.arms] if isinstance(ignoring, list) else []
    tail = f" {no_evs_text(arms)} and ignored it." if arms else ""
    yield f"On the denylist from the first packet: {told}.{tail}"


def _of_run(run: ArmRun) -> str:
    commands = [event for event in run.named("deny", "allow") if event.get("source") == "admin"]
    if not commands:
        return ""
    more = f"; and {len(commands) - MOST_COMMANDS} more" if len(commands) > MOST_COMMANDS else ""
    told = "; ".join(_command(event) for event in commands[:MOST_COMMANDS])
    return f"{label(run.arm)}, repeat {run.repeat}: an administrator {told}{more}."


def _command(event: Event) -> str:
    did = "denied" if event["event"] == "deny" else "allowed"
    tail = ", which was refused" if event.get("refused") else f" ({counted(_count(event.get('evs')), 'EV')})"
    return f"{did} {_asked(event.get('asked')) or 'something'} at {event['t_s']:.1f} s{tail}"


def _asked(asked: Any) -> str:
    """As the scenario's denylist is told."""
    if not isinstance(asked, Mapping):
        return ""
    return deny_text({"links": asked.get("links"), "evs": [asked] if asked.get("host") else []})


def _count(evs: Any) -> int:
    """EVs in {host: {peer: [numbers]}}."""
    peers = [peer for peer in evs.values() if isinstance(peer, Mapping)] if isinstance(evs, Mapping) else []
    return sum(len(numbers) for by_peer in peers for numbers in by_peer.values() if isinstance(numbers, list))
