"""The BGP arm: FRR configuration (pure), the daemons of each switch, and waiting for the kernel's FIB."""
