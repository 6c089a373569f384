"""The `deny` section: the administrator's denylist, in force from a job's first packet."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from testbed.scenario.schema import Part, as_tuple
from testbed.scenario.schema_faults import Ev

MAX_DENIED = 1000
NONE = "none"


def _link_list(value: object) -> object:
    """A list, one link, or none: so that a sweep, whose values are single ones, can set it."""
    if value is None or value == NONE:
        return ()
    return (value,) if isinstance(value, str) else as_tuple(value)


class DeniedEvs(Part):
    """Some EVs of `host` towards `peer`."""

    host: str
    peer: str
    evs: Annotated[tuple[Ev, ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=MAX_DENIED)]


class Deny(Part):
    """EVs that no sender uses: those whose path has one of `links`, in either direction, and those listed one by one."""

    links: Annotated[tuple[str, ...], BeforeValidator(_link_list), Field(max_length=MAX_DENIED)] = ()
    evs: Annotated[tuple[DeniedEvs, ...], BeforeValidator(as_tuple), Field(max_length=MAX_DENIED)] = ()

    def __bool__(self) -> bool:
        """Whether it denies anything."""
        return bool(self.links or self.evs)
