"""Named parameters of transports and of BGP, checked against the dataclasses that take them, where those can be imported."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from testbed.errors import TestbedError
from testbed.scenario.problems import Place, Problem, did_you_mean
from testbed.scenario.schema import Bgp, BgpOvs, Option, Transport

# transport or routing -> (module, dataclass)
OWNERS: Mapping[str, tuple[str, str]] = {
    "mrc": ("hosts.mrc.params", "MrcParams"),
    "rc": ("hosts.rc.params", "RcParams"),
    "tcp": ("hosts.tcp.params", "TcpParams"),
    "bgp": ("testbed.routing.options", "BgpOptions"),
    "bgp_ovs": ("testbed.pathvector.options", "BgpOvsOptions"),
}


def transport_problems(transport: Transport) -> list[Problem]:
    """What is wrong with the parameters of the transports."""
    given = transport.model_dump()
    return [problem for name in given for problem in _problems(name, given[name], ("transport", name))]


def bgp_problems(bgp: Bgp) -> list[Problem]:
    """What is wrong with the options of BGP."""
    return _problems("bgp", bgp.options(), ("bgp",), profile=bgp.profile)


def bgp_ovs_problems(bgp_ovs: BgpOvs) -> list[Problem]:
    """What is wrong with the options of the BGP that a controller runs."""
    return _problems("bgp_ovs", bgp_ovs.options(), ("bgp_ovs",), preset=bgp_ovs.preset)


def owner(name: str) -> type[Any] | None:
    """The dataclass that takes the parameters called `name`, or None where it is not installed."""
    module, attribute = OWNERS[name]
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and dataclasses.is_dataclass(found) else None


def _problems(name: str, given: Mapping[str, Option], place: Place, **base: str) -> list[Problem]:
    """`base` are parameters that were checked before, and on which the others' defaults depend."""
    kind = owner(name)
    if kind is None or not given:
        return []
    defaults = _defaults(kind, base)
    unknown = [key for key in given if key not in defaults]
    problems = [Problem((*place, key), f"unknown parameter `{key}`", did_you_mean(key, defaults, "parameters")) for key in unknown]
    known = {key: value for key, value in given.items() if key in defaults}
    problems += [_misfit((*place, key), value, defaults[key]) for key, value in known.items() if not _fits(value, defaults[key])]
    return problems or _refusal(kind, {**base, **known}, place)


def _defaults(kind: type[Any], base: Mapping[str, str]) -> dict[str, object]:
    """Every parameter's default: those of a profile, where the dataclass has profiles."""
    if base:
        return {key: value for key, value in vars(kind.from_mapping(base)).items() if key not in base}
    return {field.name: field.default for field in dataclasses.fields(kind)}


def _misfit(place: Place, value: Option, default: object) -> Problem:
    return Problem(place, f"must be {_word(default)}, not {value!r}", _default_hint(default))


def _refusal(kind: type[Any], given: Mapping[str, Option], place: Place) -> list[Problem]:
    """The dataclass knows its own limits."""
    try:
        kind.from_mapping(given)
    except (TestbedError, ValueError, TypeError, ArithmeticError) as error:
        return [Problem(place, str(error))]
    return []


def _fits(value: Option, default: object) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float)) and abs(value) < 1e300
    return isinstance(value, type(default)) if isinstance(default, (int, str)) else True


def _word(default: object) -> str:
    if isinstance(default, bool):
        return "true or false"
    return {int: "a whole number", float: "a number", str: "text"}.get(type(default), "another kind of value")


def _default_hint(default: object) -> str:
    return f"the default is {default!r}" if isinstance(default, (bool, int, float, str)) else ""
