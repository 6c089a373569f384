"""The injector with a fabric that only writes down what is done to it."""

import threading
import time

import pytest

from testbed.errors import TestbedError
from testbed.faults.injector import Injector
from testbed.scenario.faults import Fault

LINK, SWITCH = "t0_1_1-t1_1_1", "t1_1_1"


class Recorder:
    """A fabric. `boots` is held up until the test lets it go."""

    def __init__(self):
        self.done, self.may_boot = [], threading.Event()
        self.may_boot.set()
        self.error = None

    def act(self, *what):
        if self.error is not None:
            raise self.error
        self.done.append(what)
        return time.monotonic(), time.monotonic()

    def set_carrier(self, link, up):
        return self.act("carrier", link, up)

    def set_silent(self, link, on):
        return self.act("silent", link, on)

    def stop_switch(self, node, orderly):
        return self.act("stop", node, orderly)

    def boot_switch(self, node):
        assert self.may_boot.wait(30)
        return self.act("boot", node)


def fault(name, kind, target, at_s, for_s):
    return Fault(name, kind, target, "link" if "-" in target else "switch", "T1", at_s, for_s, "$")


def eventually(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def fabric():
    return Recorder()


def injector_of(fabric, faults, events=None):
    return Injector(fabric, faults, time.monotonic(), (events if events is not None else []).append)


def test_every_kind_begins_and_ends(fabric):
    faults = [fault("f1", "carrier", "a-b", 0, 0.01), fault("f2", "silent", "c-d", 0, 0.01)]
    faults += [fault("f3", "switch-kill", "s1", 0, 0.01), fault("f4", "switch-reboot", "s2", 0, 0.01)]
    injector = injector_of(fabric, faults)
    injector.start()
    eventually(lambda: len(fabric.done) == 8)
    injector.finish()
    assert sorted(fabric.done, key=str) == [
        ("boot", "s1"), ("boot", "s2"), ("carrier", "a-b", False), ("carrier", "a-b", True),
        ("silent", "c-d", False), ("silent", "c-d", True), ("stop", "s1", False), ("stop", "s2", True),
    ]  # fmt: skip


def test_a_switch_that_boots_is_not_killed_again_before_it_is_up(fabric):
    fabric.may_boot.clear()
    injector = injector_of(fabric, [fault("f2", "switch-kill", SWITCH, 0.01, 0.01), fault("f1", "switch-kill", SWITCH, 0, 0.01)])
    injector.start()
    eventually(lambda: fabric.done)
    time.sleep(0.1)  # the second fault's time is long past
    assert fabric.done == [("stop", SWITCH, False)]
    fabric.may_boot.set()
    eventually(lambda: len(fabric.done) == 4)
    assert [what for what, *_ in fabric.done] == ["stop", "boot", "stop", "boot"]


def test_the_end_of_a_run_heals_what_is_on_and_begins_nothing(fabric):
    injector = injector_of(fabric, [fault("f1", "silent", LINK, 0, 3600), fault("f2", "carrier", LINK, 3600, 1)])
    injector.start()
    eventually(lambda: fabric.done)
    injector.finish()
    assert fabric.done == [("silent", LINK, True), ("silent", LINK, False)]


def test_times_are_on_the_jobs_clock(fabric):
    events = []
    injector = injector_of(fabric, [fault("f1", "silent", LINK, 0.02, 0.03)], events)
    injector.start()
    eventually(lambda: len(events) == 2)
    assert [(event["event"], event["planned_s"]) for event in events] == [("fault_begin", 0.02), ("fault_end", 0.05)]
    assert all(event["planned_s"] <= event["issued_s"] <= event["effective_s"] for event in events)


@pytest.mark.parametrize("error", [TestbedError("no"), OSError(5, "no"), ValueError("no")])
def test_whatever_goes_wrong_in_a_fault_ends_the_run(fabric, error):
    fabric.error = error
    injector = injector_of(fabric, [fault("f1", "silent", LINK, 0, 1)])
    injector.start()
    with pytest.raises(type(error), match="no"):
        injector.finish()


def test_what_cannot_be_healed_is_named(fabric):
    fabric.may_boot.clear()
    injector = injector_of(fabric, [fault("f1", "switch-kill", SWITCH, 0, 0.01)])
    injector.start()
    eventually(lambda: fabric.done)
    with pytest.raises(TestbedError, match=f"not healed.*{SWITCH}"):
        injector.finish(timeout_s=0.2)
    fabric.may_boot.set()
