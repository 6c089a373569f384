"""The pool of agents, with small real processes in place of agents: no namespace is needed to test the talking."""

import subprocess
import sys

import pytest

from testbed.run.agents import AgentLost, AgentPool

ECHO = "import sys, json\nfor line in sys.stdin:\n    print(json.dumps({'msg': json.loads(line)['cmd']}), flush=True)\n"


def pool_of(tmp_path, scripts):
    def popen(host, argv, **options):
        return subprocess.Popen([sys.executable, "-c", scripts[host]], **options)

    return AgentPool(scripts, popen, tmp_path / "agents")


@pytest.fixture
def pools(tmp_path):
    made = []

    def make(scripts):
        pool = pool_of(tmp_path, scripts)
        made.append(pool)
        pool.start()
        return pool

    yield make
    for pool in made:
        pool.close()


def test_every_agent_answers(pools):
    pool = pools({"h1": ECHO, "h2": ECHO})
    pool.send_all({"cmd": "ready"})
    assert set(pool.gather("ready", 30)) == {"h1", "h2"}


def test_an_agent_that_ends_after_it_stopped_is_no_loss(pools):
    stops = 'print(\'{"msg": "stopped"}\', flush=True)'
    slow = 'import sys\nsys.stdin.readline()\nprint(\'{"msg": "stopped"}\', flush=True)'
    pool = pools({"h1": stops, "h2": slow})
    pool._processes["h1"].wait()  # its end is certainly in the queue before h2 answers
    pool.send("h2", {"cmd": "stop"})
    assert set(pool.gather("stopped", 30)) == {"h1", "h2"}


def test_an_agent_that_dies_is_named_with_the_end_of_its_log(pools):
    pool = pools({"h1": "raise SystemExit('the roof is on fire')"})
    with pytest.raises(AgentLost, match=r"h1 ended with status 1.*the roof is on fire"):
        pool.gather("ready", 30)


def test_silence_names_who_was_silent(pools):
    pool = pools({"h1": ECHO, "h2": "import sys\nsys.stdin.read()"})
    pool.send("h1", {"cmd": "ready"})
    with pytest.raises(AgentLost, match="silent: h2"):
        pool.gather("ready", 2)


def test_what_is_not_json_is_an_error(pools):
    pool = pools({"h1": "print('hello', flush=True)\nimport sys\nsys.stdin.read()"})
    with pytest.raises(AgentLost, match="not JSON"):
        pool.gather("ready", 30)


def test_whoever_waits_for_a_message_can_be_woken_and_misses_none(pools):
    pool = pools({"h1": ECHO})
    pool.wake()
    assert pool.next_message(600) is None
    pool.wake()
    pool.send("h1", {"cmd": "ready"})
    assert set(pool.gather("ready", 30)) == {"h1"}


def test_who_need_not_be_heard_in_time_is_left_out(pools):
    pool = pools({"h1": ECHO, "h2": "import sys\nsys.stdin.read()"})
    assert pool.gathered("ready", 0.0) == {}
    pool.send("h1", {"cmd": "ready"})
    while not (answers := pool.gathered("ready", 0.1)):
        pass
    assert set(answers) == {"h1"}
