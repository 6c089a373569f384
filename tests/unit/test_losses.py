"""What the link program is told to lose, for several reasons at once; the program's memory is an array of the test's own."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.errors import UsageError
from testbed.fabric import link_parameters
from testbed.fabric.bpf import ROW, LinkProgram, row_of
from testbed.fabric.losses import Chance, Losses
from topologies import build

TOPOLOGY = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)
LINK = next(iter(TOPOLOGY.links.values()))
A, B = row_of(LINK, True), row_of(LINK, False)


@pytest.fixture
def program() -> LinkProgram:
    program = LinkProgram()
    program.rows = np.zeros(2 * len(TOPOLOGY.links) + 2, ROW)
    return program


@pytest.fixture
def losses(program: LinkProgram) -> Losses:
    return Losses(program)


def read(program: LinkProgram, number: int) -> link_parameters.LinkParameters:
    return link_parameters.read(program.rows[number])


def test_a_direction_passes_again_with_its_last_reason(program: LinkProgram, losses: Losses) -> None:
    told = []
    for on in (True, True, False, False, False):
        losses.drop("drop_all", [(LINK, True)], on)
        told.append(read(program, A).drop_all)
    assert told == [True, True, True, False, False]


def test_one_direction_is_left_alone(program: LinkProgram, losses: Losses) -> None:
    losses.drop("drop_all", [(LINK, False)], True)
    assert (read(program, A).drop_all, read(program, B).drop_all) == (False, True)


def test_losing_data_is_another_matter_than_losing_all(program: LinkProgram, losses: Losses) -> None:
    losses.drop("drop_data", [(LINK, True)], True)
    losses.drop("drop_all", [(LINK, True)], True)
    losses.drop("drop_all", [(LINK, True)], False)
    assert (read(program, A).drop_all, read(program, A).drop_data) == (False, True)


def test_the_first_victim_is_looked_for_anew_with_each_fault(program: LinkProgram, losses: Losses) -> None:
    program.rows["first_drop_ns"][A] = 7
    losses.drop("drop_all", [(LINK, True)], True)
    assert program.rows["first_drop_ns"][A] == 0
    program.rows["first_drop_ns"][A] = 8
    losses.drop("drop_all", [(LINK, True)], True)
    assert program.rows["first_drop_ns"][A] == 8


def test_losses_of_several_reasons_are_independent(program: LinkProgram, losses: Losses) -> None:
    losses.lose(LINK, "f1", Chance(0.1))
    losses.lose(LINK, "f2", Chance(0.5), ends=(True,))
    assert read(program, A).loss == pytest.approx(1 - 0.9 * 0.5)
    assert read(program, B).loss == pytest.approx(0.1)


def test_a_loss_comes_on_top_of_what_the_link_loses_anyway_and_leaves_exactly_that(program: LinkProgram, losses: Losses) -> None:
    link_parameters.change(program.rows[A], loss=0.01, evs=(4, 5), ev_loss=0.3)
    before = program.rows[A].tobytes()
    losses.lose(LINK, "f1", Chance(0.5))
    assert read(program, A).loss == pytest.approx(1 - 0.99 * 0.5)
    losses.lose(LINK, "f2", Chance(1.0, (9,)))
    losses.restore(LINK, "f1")
    assert (read(program, A).loss, read(program, A).evs) == (pytest.approx(0.01), (9,))
    losses.restore(LINK, "f2")
    assert program.rows[A].tobytes() == before


def test_the_evs_of_two_reasons_are_lost_together(program: LinkProgram, losses: Losses) -> None:
    losses.lose(LINK, "f1", Chance(0.2, (1, 2)))
    losses.lose(LINK, "f2", Chance(0.2, (2, 3)))
    assert (read(program, A).evs, read(program, A).ev_loss, read(program, A).loss) == ((1, 2, 3), pytest.approx(0.2), 0)
    losses.restore(LINK, "f1")
    assert read(program, A).evs == (2, 3)


@pytest.mark.parametrize("anyway", [(), (4, 5)])
def test_a_rule_for_evs_goes_while_another_loss_stays(program: LinkProgram, losses: Losses, anyway: tuple[int, ...]) -> None:
    link_parameters.change(program.rows[A], evs=anyway, ev_loss=0.3 if anyway else 0)
    losses.lose(LINK, "f1", Chance(0.1))
    losses.lose(LINK, "f2", Chance(1.0, (9,)))
    losses.restore(LINK, "f2")
    assert (read(program, A).evs, read(program, A).loss) == (anyway, pytest.approx(0.1))


@pytest.mark.parametrize("chance", [Chance(0.3, (1,)), Chance(0.2, tuple(range(9)))])
def test_what_the_program_cannot_do_is_refused_and_changes_nothing(program: LinkProgram, losses: Losses, chance: Chance) -> None:
    losses.lose(LINK, "f1", Chance(0.2, (1, 2)))
    before = program.rows.tobytes()
    with pytest.raises(UsageError, match="at most 8 EVs"):
        losses.lose(LINK, "f2", chance)
    assert program.rows.tobytes() == before


def test_a_reason_that_is_not_there_changes_nothing(program: LinkProgram, losses: Losses) -> None:
    before = program.rows.tobytes()
    losses.restore(LINK, "f1")
    assert program.rows.tobytes() == before
