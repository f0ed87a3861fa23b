"""Work in a process of its own, which may be killed for want of memory without taking this one along."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing import connection
from typing import Any, TypeVar

from heads_for_depth.sweeps.workers import end_with

T = TypeVar("T")


def in_own_process(function: Callable[..., T], *arguments: Any) -> T | None:
    """The result of a call in a fresh process; None where that was killed, as the system does when memory runs out.

    What the call raises is raised here. RuntimeError where the process ended in any other way.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()
    try:
        succeeded, value = receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGKILL:
            return None
        raise RuntimeError(f"a measuring process ended with exit code {process.exitcode}") from None
    finally:
        receiver.close()
    process.join()
    if not succeeded:
        raise value
    result: T = value
    return result


def _call(sender: connection.Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The child: ends with its parent, leaves Ctrl-C to it, and sends the result or the exception."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "started by in_own_process"
    threading.Thread(target=end_with, args=(parent.sentinel,), daemon=True).start()
    try:
        message = True, function(*arguments)
    except Exception as error:
        message = False, error
    sender.send(message)
