"""The emulated network: Mininet nodes, shaped veth links with a BPF program on each egress, and switches."""

from testbed.fabric.fabric import Fabric
from testbed.link_settings import LinkSettings

__all__ = ["Fabric", "LinkSettings"]
