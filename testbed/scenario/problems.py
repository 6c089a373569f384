"""What is wrong with a scenario: every problem with its place, its line and a hint, all told at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.errors import UsageError
from testbed.units import counted

Place = tuple["str | int", ...]


def place_text(place: Place) -> str:
    """Writes a place as the reader knows it: ("faults", 2, "at") -> "$.faults[2].at"."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: `place` in the file, a sentence, what to do, and the line (None if it came from --set)."""

    place: Place
    message: str
    hint: str = ""
    line: int | None = None

    def as_dict(self) -> dict[str, object]:
        """JSON-able form for --json."""
        return {"place": place_text(self.place), "line": self.line, "message": self.message, "hint": self.hint}

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        hint = f"\n      hint: {self.hint}" if self.hint else ""
        return f"{where}{place_text(self.place)}: {self.message}{hint}"


class ScenarioInvalid(UsageError):
    """A scenario (or fault list) that makes no sense; `problems` holds everything that was found."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(set(problems), key=_order))
        count = counted(len(self.problems), "problem")
        super().__init__("\n".join([f"{source} is not valid: {count}", *(f"  - {problem}" for problem in self.problems)]))


def _order(problem: Problem) -> tuple[float, str, str]:
    return (problem.line if problem.line is not None else float("inf"), place_text(problem.place), problem.message)


def did_you_mean(word: object, known: Iterable[str], label: str = "known") -> str:
    """A hint for a misspelt word: the nearest known one, else all of them (cut short)."""
    names = list(known)
    near = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    shown = ", ".join(names[:16]) + (", ..." if len(names) > 16 else "")
    return f"{label}: {shown}" if names else ""
