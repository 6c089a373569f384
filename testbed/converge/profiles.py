"""The routing profiles that can be measured side by side: an arm's switches, and what a scenario must say to get the profile. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.routing.options import PROFILES as BGP_PROFILES
from testbed.scenario.derived_links import SWITCHING_OF_ARM

OVS_PRESETS = ("frr", "large-fabric")
STATIC = "static"
BGP_ROUTERS, CONTROLLER = "rc-bgp", "rc-bgp-ovs"

BRING_UP_S: Mapping[str, float] = {"frr": 14.0, "ovs-bgp": 18.0, "ovs-ecmp": 12.0}
"""Rough seconds until a k=4 fabric of each kind of switches is up and verified, and down again (benchmarks/bringup.py)."""


@dataclass(frozen=True)
class Profile:
    """One way to route. `arm` decides the switches; `override` is the `key=value` that gives a scenario the profile, if it needs one."""

    name: str
    arm: str
    override: str = ""

    @property
    def switching(self) -> str:
        """The kind of switches, as `Fabric` takes it."""
        return SWITCHING_OF_ARM[self.arm]


PROFILES: Mapping[str, Profile] = {
    **{name: Profile(name, BGP_ROUTERS, f"bgp.profile={name}") for name in BGP_PROFILES},
    **{f"ovs-{preset}": Profile(f"ovs-{preset}", CONTROLLER, f"bgp_ovs.preset={preset}") for preset in OVS_PRESETS},
    STATIC: Profile(STATIC, "rc-static"),
}
"""FRR's by their own names, the presets of the controller's path-vector, and tables that nothing changes: the control."""
