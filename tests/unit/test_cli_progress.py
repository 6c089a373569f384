"""Progress lines: the time left, plain output, a stream that breaks."""

from __future__ import annotations

import io

import pytest

from testbed.cli.progress import PlainReporter, progress_line


@pytest.mark.parametrize(
    ("eta_s", "spent_s", "line"),
    [
        (90.0, 0.0, "job (about 1 min 30 s left)"),
        (90.0, 80.0, "job (about 10 s left)"),
        (90.0, 89.9, "job (about 1 s left)"),
        (90.0, 90.5, "job (about done)"),
        (90.0, 100.0, "job (10 s over the estimate)"),
        (None, 0.0, "job"),
        (None, 12.0, "job (12 s so far)"),
    ],
)
def test_tells_the_time_left(eta_s: float | None, spent_s: float, line: str) -> None:
    assert progress_line("job", 5.0, eta_s, 5.0 + spent_s) == line


def test_plain_lines_tell_phases_notes_and_warnings() -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream, every_s=3600)
    reporter.phase("bringing up", 8)
    reporter.note("results: x")
    reporter.warn("careful")
    reporter.close()
    assert stream.getvalue().splitlines() == ["bringing up (about 8 s left)", "results: x", "warning: careful"]


def test_plain_lines_go_on_during_a_phase() -> None:
    class Counting(io.StringIO):
        lines = 0

        def write(self, text: str) -> int:
            Counting.lines += 1
            return len(text)

    reporter = PlainReporter(Counting(), every_s=0.001)
    reporter.phase("long work")
    while Counting.lines < 5:
        pass
    reporter.close()


def test_a_broken_stream_does_not_stop_the_run() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    reporter = PlainReporter(Broken(), every_s=3600)
    reporter.phase("going on")
    reporter.note("still")
    reporter.close()
