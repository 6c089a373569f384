"""The process that plays every switch's control plane in `rc-bgp-ovs`: BGP as a model, liveness and tables for real (docs/bgp-ovs.md)."""
