"""Starting the process of probes for one fault, waiting until its probes run, and getting its report."""

from __future__ import annotations

import json
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from testbed.converge.analysis import Stream
from testbed.converge.classes import ProbeFlow
from testbed.errors import HostError
from topologies import Topology, addresses

RUNNING_S = 20.0
STOPPED_S = 20.0


class Probing:
    """Probes on all streams of one fault, inside a `with`. HostError if they do not all arrive while nothing is broken."""

    def __init__(self, topology: Topology, pid_of: Callable[[str], int], flows: Sequence[ProbeFlow], gap_s: float) -> None:
        self._flows = flows
        self._asked = {"magic": secrets.randbits(32), "gap_s": gap_s, "flows": [_plain(topology, pid_of, flow) for flow in flows]}
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> Probing:
        """Starts them and waits until some of each stream have arrived."""
        argv = [sys.executable, "-m", "testbed.converge.probes"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        try:
            self._tell(json.dumps(self._asked))
            self._answer("opened", RUNNING_S)
            self._answer("running", RUNNING_S)
        except BaseException:  # an interrupt, too: nobody else would end it
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends the process, if it still runs."""
        self._end()

    def _end(self) -> None:
        process = self._live()
        process.kill()
        process.communicate()

    def stop(self) -> dict[str, Any]:
        """Ends the probes; their report, with `streams` for the analysis."""
        self._tell("stop")
        report = self._answer("stopped", STOPPED_S)
        told = zip(self._flows, report["flows"], strict=True)
        return {**report, "streams": [Stream(flow, one["sent"], one["lost"]) for flow, one in told]}

    def _live(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise HostError("the probes were not started")
        return self._process

    def _tell(self, line: str) -> None:
        pipe = self._live().stdin
        assert pipe is not None
        try:
            pipe.write(line.encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            raise self._dead() from None

    def _answer(self, wanted: str, timeout_s: float) -> dict[str, Any]:
        """The next message, which must be `wanted`."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            self._read(deadline, wanted)
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        if found["msg"] != wanted:
            raise HostError(f"the probes said {found['msg']!r} instead of {wanted!r}")
        return found

    def _read(self, deadline: float, wanted: str) -> None:
        pipe = self._live().stdout
        assert pipe is not None
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise HostError(f"the probes did not come to {wanted!r} in time: {self._unheard() if wanted == 'running' else 'no answer'}")
        chunk = pipe.read1(1 << 20)  # type: ignore[attr-defined]
        if not chunk:
            raise self._dead()
        self._buffer += chunk

    def _unheard(self) -> str:
        """Which streams had nothing arrive although nothing is broken."""
        flows = self.stop()["flows"]
        mute = [f"{flow.source} to {flow.target}" for flow, one in zip(self._flows, flows, strict=True) if not one["arrived"]]
        return f"nothing arrived of {', '.join(dict.fromkeys(mute)) or 'no stream, but too few of some'}; nothing is broken yet"

    def _dead(self) -> HostError:
        return HostError(f"the process of probes ended with status {self._live().wait()}: its words are on standard error")


def _plain(topology: Topology, pid_of: Callable[[str], int], flow: ProbeFlow) -> dict[str, Any]:
    source, target = topology.nodes[flow.source], topology.nodes[flow.target]
    return {
        "source_pid": pid_of(flow.source),
        "source_address": str(addresses.host_address(source)),
        "port": flow.port,
        "target_pid": pid_of(flow.target),
        "target_address": str(addresses.host_address(target)),
    }
