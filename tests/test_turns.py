"""Visitors take turns, and none of them for ever."""

import threading
import time

import pytest

from parplan.ui import turns
from parplan.ui.turns import turn


def test_one_at_a_time() -> None:
    inside, most = 0, 0

    def visit() -> None:
        nonlocal inside, most
        with turn():
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    visitors = [threading.Thread(target=visit) for _ in range(8)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert most == 1


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    passed = threading.Event()

    def visit() -> None:
        with turn():
            passed.set()

    with turn():
        other = threading.Thread(target=visit)
        other.start()
        assert passed.wait(5)
        other.join()
    with turn():  # the turn that was not taken was not given back either
        assert turns._turn.locked()


def test_a_fault_gives_the_turn_back() -> None:
    with pytest.raises(ZeroDivisionError), turn():
        raise ZeroDivisionError
    assert not turns._turn.locked()
