"""`testbed decode`: a capture explained packet by packet, as it is read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from testbed.cli.output import Output, drop_stdout
from testbed.errors import TestbedError, UsageError
from testbed.scenario.problems import did_you_mean


@click.command()
@click.argument("pcap", metavar="PCAP")
@click.option("--only", metavar="KIND,KIND", help="Only packets of these kinds, as sack,nack; `malformed`: of any kind with a problem.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, for each packet.")
def decode(pcap: str, only: str | None, as_json: bool) -> Output:
    """Explain a capture (pcap or pcapng; `-` is standard input) packet by packet.

    Exit codes: 0 good; 1 there are malformed packets, or the file is damaged; 2 it is no capture.
    """
    from testbed.capture.explain import Tally, explained
    from testbed.capture.reading import Capture

    kinds, tally = _kinds(only), Tally()
    with _opened(pcap) as stream:
        capture = Capture(stream, pcap)
        if not _printed(explained(capture, tally, kinds, as_json)):
            return Output({})
    return Output({}, (), _close(capture.damage, capture.dropped, list(tally.sentences()), tally.malformed))


def _printed(lines: Iterable[str]) -> bool:
    """Whether somebody read them to the end; click would make a reader that has gone away (`| head`) an error."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
        return False
    return True


def _kinds(only: str | None) -> frozenset[str]:
    from hosts.decode import KINDS
    from testbed.capture.explain import MALFORMED

    known, kinds = [*KINDS, MALFORMED], [kind.strip() for kind in only.split(",")] if only is not None else []
    for kind in kinds:
        if kind not in known:
            raise UsageError(f"--only {only}: there is no kind {kind!r} ({did_you_mean(kind, known, 'kinds')})")
    return frozenset(kinds)


@contextmanager
def _opened(pcap: str) -> Iterator[BinaryIO]:
    if pcap == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(pcap).open("rb")  # noqa: SIM115 - what goes wrong while it is read is another matter
    except (OSError, ValueError) as error:
        raise UsageError(f"{pcap!r} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    with stream:
        yield stream


def _close(damage: str, dropped: int, sentences: list[str], malformed: int) -> int:
    """The summary on standard error; returns the exit code."""
    lost = [f"{dropped} more were dropped by the kernel while capturing"] if dropped else []
    broken = [f"the file is damaged, and ends here: {damage}"] if damage else []
    for text in [*sentences, *lost, *broken]:
        print(text, file=sys.stderr)
    return TestbedError.exit_code if malformed or damage else 0
