"""A ring of real agent processes, each in a network namespace of its own, joined by plain veth pairs: for the netns tests and benchmarks.

The namespaces live and die with the agents; nothing is made in the caller's own namespace. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Message = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
MTU_BYTES = 9000
ANSWER_TIMEOUT_S = 30.0


class AgentProcess:
    """One agent and its pipes."""

    def __init__(self, name: str, log: Path | None = None, profile: Path | None = None) -> None:
        self.name = name
        profiler = ["-m", "cProfile", "-o", str(profile)] if profile is not None else []
        self._log = log.open("wb") if log is not None else None
        self.process = subprocess.Popen(
            ["unshare", "--net", "--", sys.executable, *profiler, "-m", "hosts.agent"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0, cwd=ROOT,
        )  # fmt: skip
        self.pid = self.process.pid
        self._rest = b""
        self._messages: list[Message] = []
        own = os.readlink("/proc/self/ns/net")
        _until(lambda: os.readlink(f"/proc/{self.pid}/ns/net") != own, f"{name} has a namespace of its own")

    def send(self, command: Mapping[str, Any] | bytes) -> None:
        """Sends a command, or raw bytes."""
        assert self.process.stdin is not None
        self.process.stdin.write(command if isinstance(command, bytes) else json.dumps(command).encode() + b"\n")

    def wait_for(self, kind: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Message:
        """The next message of `kind`; others before it are dropped. TimeoutError names what came instead."""
        deadline, others = time.monotonic() + timeout_s, list[Message]()
        while (left_s := deadline - time.monotonic()) > 0:
            message = self._next(left_s)
            if message is not None and message["msg"] == kind:
                return message
            others += [message] if message is not None else []
        raise TimeoutError(f"{self.name} sent no {kind!r} within {timeout_s} s, but {others[-3:]}")

    def _next(self, timeout_s: float) -> Message | None:
        assert self.process.stdout is not None
        if not self._messages and select.select([self.process.stdout], (), (), timeout_s)[0]:
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise TimeoutError(f"{self.name} ended with status {self.process.wait()}")
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._messages += [json.loads(line) for line in lines]
        return self._messages.pop(0) if self._messages else None

    def close(self) -> int:
        """End of input, then the exit status."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if self._log is not None:
            self._log.close()
        return status


class Lab:
    """A ring of `ranks` agents with `links_a_hop` parallel veth pairs between neighbours (two ranks: one hop)."""

    def __init__(self, ranks: int, links_a_hop: int = 1, logs: Path | None = None, profiles: Path | None = None) -> None:
        self.names = [f"h{rank + 1}" for rank in range(ranks)]
        self.agents = {name: AgentProcess(name, _file(logs, name, "log"), _file(profiles, name, "prof")) for name in self.names}
        self._ports: dict[str, list[str]] = {name: [] for name in self.names}  # the neighbour behind each port
        for name in self.names:
            ip(self.agents[name].pid, "link set lo up", f"addr add {self.address(name)}/128 dev lo nodad")
        hops = range(ranks if ranks > 2 else ranks - 1)
        for hop in hops:
            for _ in range(links_a_hop):
                self._join(self.names[hop], self.names[(hop + 1) % ranks])

    def address(self, name: str) -> str:
        """The host's own address; MRC's outer destination too."""
        return f"fd00::{self.names.index(name) + 1}"

    def _join(self, a: str, b: str) -> None:
        ends = [(a, b, f"{a}-eth{len(self._ports[a])}"), (b, a, f"{b}-eth{len(self._ports[b])}")]
        (_, _, if_a), (_, _, if_b) = ends
        pid_a, pid_b = self.agents[a].pid, self.agents[b].pid
        ip(pid_a, f"link add {if_a} mtu {MTU_BYTES} type veth peer name {if_b} mtu {MTU_BYTES} netns {pid_b}")
        for own, peer, device in ends:
            port = len(self._ports[own])
            self._ports[own].append(peer)
            ip(
                self.agents[own].pid,
                f"link set {device} address {_mac(own, port)} addrgenmode none up",
                f"route add {self.address(peer)}/128 dev {device} src {self.address(own)} metric {1024 + port}",
                f"neigh replace {self.address(peer)} dev {device} nud permanent lladdr {_mac(peer, len(self._ports[peer]) - (peer == a))}",
            )

    def cut(self, name: str, port: int, *, up: bool = False) -> None:
        """Takes the interface down (or up again, with its route and neighbour entry restored)."""
        device, peer = f"{name}-eth{port}", self._ports[name][port]
        ip(self.agents[name].pid, f"link set {device} {'up' if up else 'down'}")
        if up:
            back = [at for at, other in enumerate(self._ports[peer]) if other == name][self._ports[name][:port].count(peer)]
            ip(
                self.agents[name].pid,
                f"route replace {self.address(peer)}/128 dev {device} src {self.address(name)} metric {1024 + port}",
                f"neigh replace {self.address(peer)} dev {device} nud permanent lladdr {_mac(peer, back)}",
            )

    def peer(self, name: str, target: str) -> dict[str, Any]:
        """An entry of the agent protocol's `send_to` and `receive_from`."""
        ports, far = ([at for at, other in enumerate(self._ports[a]) if other == b] for a, b in ((name, target), (target, name)))
        paths = [
            {
                "ev": ev, "port": port, "destination": self.address(target), "plane": 1, "links": [f"{name}-{target}-{ev}"],
                "peer_port": far[ev],
            }
            for ev, port in enumerate(ports)
        ]  # fmt: skip
        return {"name": target, "address": self.address(target), "paths": paths}

    def config(self, name: str, transport: str, job: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The `config` command of one agent; `more` adds or replaces keys."""
        rank, ranks = self.names.index(name), len(self.names)
        return {
            "cmd": "config", "host": name, "rank": rank, "transport": transport, "params": {}, "job": dict(job), "seed": 7, "files": {},
            "addresses": {"outer": self.address(name), "inner": self.address(name)},
            "send_to": [self.peer(name, self.names[(rank + 1) % ranks])], "receive_from": [self.peer(name, self.names[rank - 1])],
            **more,
        }  # fmt: skip

    def all_to_all(self, name: str, transport: str, job: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The `config` command of one agent of an all-to-all; every two hosts need a link of their own (at most three ranks)."""
        peers = [self.peer(name, other) for other in self.names if other != name]
        whole = {"kind": "all-to-all", "hosts": self.names, **job}
        return self.config(name, transport, whole, send_to=peers, receive_from=peers, **more)

    def streams(
        self, transport: str, flows: Sequence[Mapping[str, Any]], message_bytes: int, outstanding: int = 4, **more: Any
    ) -> list[dict[str, Any]]:
        """The `config` commands of streams: flows of {from, to, start_s, stop_s}, between neighbours; times may be left out."""
        return [self._streams(name, transport, flows, message_bytes, outstanding, more) for name in self.names]

    def _streams(
        self, name: str, transport: str, flows: Sequence[Mapping[str, Any]], message_bytes: int, outstanding: int, more: Mapping[str, Any]
    ) -> dict[str, Any]:
        incoming = {host: [flow["from"] for flow in flows if flow["to"] == host] for host in self.names}
        outgoing = [
            {
                "to": flow["to"], "start_s": flow.get("start_s", 0.0), "stop_s": flow.get("stop_s"),
                "place": incoming[flow["to"]].index(name),
            }
            for flow in flows if flow["from"] == name
        ]  # fmt: skip
        job = {
            "kind": "streams", "message_bytes": message_bytes, "outstanding": outstanding,
            "outgoing": outgoing, "incoming": [{"from": source} for source in incoming[name]],
        }  # fmt: skip
        send_to = [self.peer(name, flow["to"]) for flow in outgoing]
        return self.config(name, transport, job, send_to=send_to, receive_from=[self.peer(name, s) for s in incoming[name]], **more)

    def connect(self, configs: Sequence[Mapping[str, Any]]) -> None:
        """Configures and connects every agent."""
        for config in configs:
            self.agents[config["host"]].send(config)
        ready = {name: agent.wait_for("ready")["attributes"] for name, agent in self.agents.items()}
        self.tell({"cmd": "connect", "peers": ready})
        for agent in self.agents.values():
            agent.wait_for("connected")

    def tell(self, command: Mapping[str, Any]) -> None:
        """Sends a command to every agent."""
        for agent in self.agents.values():
            agent.send(command)

    def start(self, first_step: int = 0, attempt: int = 1, delay_s: float = 0.1) -> float:
        """Starts the job; returns its time."""
        at = time.monotonic() + delay_s
        self.tell({"cmd": "start", "at": at, "first_step": first_step, "attempt": attempt})
        return at

    def restart_after_cut(self, configs: Sequence[Mapping[str, Any]], first_step: int = 0) -> tuple[str, Message]:
        """Cuts h1's first link until a QP fails, mends it, and starts a second attempt; returns who failed, and its `qp_error`."""
        self.cut("h1", 0)
        failed, message = self.first("qp_error")
        self.abort()
        self.cut("h1", 0, up=True)
        self.connect(configs)
        self.start(first_step=first_step, attempt=2)
        return failed, message

    def follow(self, step: int) -> None:
        """Until every agent has finished `step`."""
        for agent in self.agents.values():
            while agent.wait_for("step")["step"] < step:
                pass

    def first(self, kind: str, timeout_s: float = ANSWER_TIMEOUT_S) -> tuple[str, Message]:
        """The first agent that sends a message of `kind`, and the message: for what may happen at either end.

        Of a lockstep job cut in two, only an agent that has something outstanding notices; the others wait for data.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for name, agent in self.agents.items():
                with contextlib.suppress(TimeoutError):
                    return name, agent.wait_for(kind, 0.05)
        raise TimeoutError(f"none of {', '.join(self.agents)} sent a {kind!r} within {timeout_s} s")

    def abort(self) -> None:
        """Ends the job of every agent; each takes a new configuration then."""
        self.tell({"cmd": "abort"})
        for agent in self.agents.values():
            agent.wait_for("aborted")

    def drain(self) -> dict[str, dict[str, bool]]:
        """Ends the job of every agent, and waits until all have drained; which QPs closed cleanly, by host and peer."""
        self.tell({"cmd": "drain"})
        return {name: agent.wait_for("drained")["closed"] for name, agent in self.agents.items()}

    def stop(self) -> dict[str, dict[str, Any]]:
        """Stops every agent; its reports by host."""
        self.tell({"cmd": "stop"})
        return {name: agent.wait_for("stopped")["report"] for name, agent in self.agents.items()}

    def close(self) -> None:
        """Ends every agent, and with it its namespace."""
        for agent in self.agents.values():
            with contextlib.suppress(BrokenPipeError):
                agent.close()


@contextlib.contextmanager
def lab(ranks: int, links_a_hop: int = 1, logs: Path | None = None, profiles: Path | None = None) -> Iterator[Lab]:
    """A Lab that is closed at the end; each agent's standard error goes to a file in `logs`, cProfile's statistics to one in `profiles`."""
    it = Lab(ranks, links_a_hop, logs, profiles)
    try:
        yield it
    finally:
        it.close()


def _file(folder: Path | None, name: str, ending: str) -> Path | None:
    return folder / f"{name}.{ending}" if folder is not None else None


def ip(pid: int, *commands: str) -> None:
    """Runs iproute2 commands in the namespace of process `pid`; CalledProcessError if one fails."""
    subprocess.run(
        ["nsenter", "-t", str(pid), "--net", "ip", "-batch", "-"],
        input="\n".join(commands) + "\n",
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _mac(name: str, port: int) -> str:
    return f"02:00:00:00:{int(name[1:]):02x}:{port:02x}"


def _until(condition: Any, what: str, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(0.002)
