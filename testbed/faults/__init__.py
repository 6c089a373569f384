"""Carrying out a fault timeline on a fabric."""
