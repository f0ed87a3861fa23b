"""One sweep at a time in a results folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heads_for_depth.errors import BadInput

LOCK = ".sweep.lock"


@contextmanager
def only_sweep(results: Path) -> Iterator[None]:
    """Hold the results folder. The lock belongs to the process, so a killed sweep leaves none behind.

    Raises BadInput while another sweep holds it.
    """
    with (results / LOCK).open("w", encoding="utf8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput("results", str(results), "another sweep is writing there, wait for it or stop it") from error
        yield
