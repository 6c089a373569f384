"""Runs the job over the agents of one arm: connect, start, restart after a crash (from a checkpoint if it has steps), stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.reporting import Reporter
from testbed.run.agents import AgentPool, Message
from testbed.run.denials import ANSWERS, Denials
from testbed.run.plan import restart_step

ANSWER_TIMEOUT_S = 60.0  # so wide that only a fault breaks it
START_MARGIN_S = 0.3  # between the start command and the first step, so that every agent is waiting for it
PROGRESS_EVERY_S = 5.0


@dataclass
class JobState:
    """The job as the supervisor knows it."""

    origin: float | None = None  # when the first attempt began, CLOCK_MONOTONIC seconds
    began: float = float("-inf")  # when this attempt began, or is about to
    attempt: int = 1
    first_step: int = 0
    crashes: int = 0
    wrong_sums: int = 0
    completed: dict[str, int] = field(default_factory=dict)

    def reached(self) -> int:
        """Steps that every rank has finished so far, redone ones once."""
        return max(self.first_step, min(self.completed.values()) + 1) if self.completed else self.first_step


class JobSupervisor:
    """`configs` maps each host to its `config` command; `record` takes history events with raw monotonic `t`.

    `checkpoint_every` is None for a job without steps: after a crash it begins anew, but its times still count from the first start.
    `denials` is what an administrator may ask for in the meantime; None where nobody can.
    """

    def __init__(
        self,
        pool: AgentPool,
        configs: Mapping[str, Mapping[str, Any]],
        *,
        checkpoint_every: int | None,
        restart_s: float,
        record: Callable[[Message], None],
        reporter: Reporter,
        denials: Denials | None = None,
    ) -> None:
        self._pool, self._configs, self._record, self._reporter, self._denials = pool, configs, record, reporter, denials
        self._checkpoint_every, self._restart_s = checkpoint_every, restart_s
        self.state = JobState()

    def connect(self, until: float = float("inf")) -> bool:
        """Makes QPs in every agent and hands each agent's attributes to all others: MRC's out-of-band exchange.

        False if the time `until` came before all were connected, as TCP's connections over a broken path may need long.
        """
        for host, config in self._configs.items():
            self._pool.send(host, self._denials.config(host) if self._denials else config)
        ready = self._pool.gather("ready", ANSWER_TIMEOUT_S, self._note)
        if self._denials:
            self._denials.ready(time.monotonic(), {host: answer.get("denied", {}) for host, answer in ready.items()})
        self._pool.send_all({"cmd": "connect", "peers": {host: answer["attributes"] for host, answer in ready.items()}})
        left_s = until - time.monotonic()
        if left_s < ANSWER_TIMEOUT_S:
            return len(self._pool.gathered("connected", max(0.0, left_s), self._note)) == len(self._configs)
        self._pool.gather("connected", ANSWER_TIMEOUT_S, self._note)
        return True

    def start(self, event: str = "job_start") -> float:
        """Orders the first step of this attempt; returns its time (CLOCK_MONOTONIC seconds)."""
        begin = time.monotonic() + START_MARGIN_S
        state = self.state
        state.began, state.origin = begin, (origin := begin if state.origin is None else state.origin)
        self._pool.send_all({"cmd": "start", "at": begin, "first_step": state.first_step, "attempt": state.attempt, "origin": origin})
        self._record({"t": begin, "source": "run", "event": event, "attempt": state.attempt, "step": state.first_step})
        return begin

    def supervise(self, until: float, check: Callable[[], None]) -> None:
        """Follows the job until the deadline, restarting it after each crash; `check` is called often and may raise."""
        told = time.monotonic()
        while (now := time.monotonic()) < until:
            check()
            if self._denials:
                self._denials.turn()
            if now - told >= PROGRESS_EVERY_S:
                told = now
                self._reporter.phase(f"{self._progress()}, {self.state.crashes} crash{'es' * (self.state.crashes != 1)}", until - now)
            got = self._pool.next_message(min(0.5, until - now))
            if got is not None and self._take(*got):
                self._restart(until)

    def _progress(self) -> str:
        return "the streams run" if self._checkpoint_every is None else f"step {self.state.reached()}"

    def stop(self) -> dict[str, Message]:
        """Ends the job where it is; returns each agent's report.

        No agent leaves before all have drained: each has to acknowledge what the others still have outstanding.
        """
        where = {"attempt": self.state.attempt, "step": self.state.reached()}
        self._record({"t": time.monotonic(), "source": "run", "event": "job_stop", **where})
        self._pool.send_all({"cmd": "drain"})
        self._pool.gather("drained", ANSWER_TIMEOUT_S, self._note)
        self._pool.send_all({"cmd": "stop"})
        answers = self._pool.gather("stopped", ANSWER_TIMEOUT_S, self._note)
        return {host: answer["report"] for host, answer in answers.items()}

    def _take(self, host: str, message: Message) -> bool:
        """Books one message; True if the job has crashed."""
        kind = message["msg"]
        if kind == "step":
            self.state.completed[host] = message["step"]
        elif kind == "qp_error":
            self._record_crash(host, message)
            return True
        else:
            self._note(host, message)
        return False

    def _note(self, host: str, message: Message) -> None:
        """What counts at any time, even in a message that crossed an abort or a stop, when the job is ending anyway."""
        if message["msg"] == "wrong_sum":
            self._count_wrong_sum(host, message)
        elif message["msg"] in ANSWERS and self._denials:
            self._denials.answer(host, message)

    def _count_wrong_sum(self, host: str, message: Message) -> None:
        self.state.wrong_sums += 1
        step, peer = message["step"], message.get("peer")
        self._record({"t": time.monotonic(), "source": host, "event": "wrong_sum", "step": step, "peer": peer})
        what = "sum of step" if peer is None else f"data from {peer} of {'message' if self._checkpoint_every is None else 'step'}"
        self._reporter.warn(f"{host}: the {what} {step} is wrong: the transport delivered wrong data")

    def _record_crash(self, host: str, message: Message) -> None:
        """What failed while the job was being joined ends it when it begins, not before."""
        self.state.crashes += 1
        now, reason = max(time.monotonic(), self.state.began), f"{message.get('peer')}: {message.get('reason')}"
        common = {"attempt": self.state.attempt, "step": self.state.reached(), "reason": reason}
        self._record({"t": now, "source": host, "event": "job_crash", **common})
        where = "" if self._checkpoint_every is None else f" at step {self.state.reached()}"
        self._reporter.warn(f"{host}: QP to {reason}; the job crashed{where}")

    def _restart(self, until: float) -> None:
        """The processes end together; of a lockstep job the work since its last checkpoint is lost; a new attempt needs `restart_s`.

        None is begun that could not begin before the job's end.
        """
        again = max(time.monotonic(), self.state.began) + self._restart_s
        self._pool.send_all({"cmd": "abort"})
        self._pool.gather("aborted", ANSWER_TIMEOUT_S, self._note)
        state = self.state
        if self._checkpoint_every is not None:
            state.first_step = restart_step(state.completed, len(self._configs), state.first_step, self._checkpoint_every)
        state.attempt += 1
        state.completed.clear()
        if again >= until:
            return
        time.sleep(max(0.0, again - time.monotonic()))
        if self.connect(until) and time.monotonic() + START_MARGIN_S < until:
            self.start("job_restart")
