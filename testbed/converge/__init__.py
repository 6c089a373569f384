"""Convergence measured on probe traffic and on FIBs: each fault of a scenario by itself, for each routing profile (docs/converge.md)."""
