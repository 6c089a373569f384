"""The engine: command line, sandbox, fabric, routing, faults, collectors, report."""
