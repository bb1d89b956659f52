"""Visitors take turns.

All reruns of a process share one interpreter. Sliced into each other they take half as long again, and each ends
about when the last one does; one after the other, nearly all end sooner.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

PATIENCE = 0.5
"""Seconds somebody waits at most; behind a slow page the others then run beside it."""
_turn = Lock()


@contextmanager
def turn() -> Iterator[None]:
    """Runs when nobody else's turn is on, or patience is at an end."""
    taken = _turn.acquire(timeout=PATIENCE)
    try:
        yield
    finally:
        if taken:
            _turn.release()
