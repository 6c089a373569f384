"""What long work tells the person who waits for it. The command line gives the real one; tests give their own."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Receives progress; never raises."""

    def phase(self, text: str, eta_s: float | None = None) -> None:
        """What is going on now, and the seconds left, if known."""

    def note(self, text: str) -> None:
        """Something worth a line that stays."""

    def warn(self, text: str) -> None:
        """Something the user should not miss."""


class SilentReporter:
    """Says nothing."""

    def phase(self, text: str, eta_s: float | None = None) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""

    def warn(self, text: str) -> None:
        """Ignored."""
