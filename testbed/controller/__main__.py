"""`python -m testbed.controller CONFIG.json`: runs until it is killed. One JSON line to stdout when it has begun; its log is stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from testbed.controller import openflow
from testbed.controller.brain import Brain
from testbed.controller.config import Config
from testbed.controller.messages import Event
from testbed.errors import TestbedError
from testbed.pathvector import BgpOvsOptions
from topologies import build


class Process:
    """The brain with a clock, a file for its history, and somebody who waits for its begin."""

    def __init__(self, config: Config, library: openflow.Library, history: TextIO, ready: TextIO) -> None:
        options = BgpOvsOptions.from_mapping(config.options)
        topology = build(config.kind, **dict(config.params))
        self._brain = Brain(topology, options, config.seed, config.switches, config.gather_s, self._write)
        self._library, self._history, self._ready, self._told = library, history, ready, False

    def step(self, events: Sequence[Event]) -> float:
        """One round."""
        wait_s = self._brain.step(time.monotonic(), events)
        if self._brain.settled and not self._told:
            self._told = True
            self._ready.write(json.dumps({"library": asdict(self._library), "missing": self._brain.missing}) + "\n")
            self._ready.flush()
        self._history.flush()
        return wait_s

    def _write(self, event: Mapping[str, Any]) -> None:
        self._history.write(json.dumps(event) + "\n")


def main(argv: Sequence[str]) -> int:
    """Exit code of the error that ends it."""
    config = Config.parse(Path(argv[0]).read_text())
    try:
        library = openflow.find(config.library)
        with Path(config.events).open("a") as history:
            openflow.serve(library, Path(config.socket), Process(config, library, history, sys.stdout).step)
    except TestbedError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
