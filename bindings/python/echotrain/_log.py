"""Passes the library's log lines to the module logging."""

import atexit
import logging
import os
import threading
from typing import Optional

from . import native

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_ABOUT_BAD_RECORD = 1

_reader: Optional[threading.Thread] = None


def _read() -> None:
    while True:
        line = native.LogQueue.next()
        if not line.valid:
            return
        try:
            name = "echotrain.bad_records" if line.subject == _ABOUT_BAD_RECORD else "echotrain"
            logging.getLogger(name).log(_LEVELS[line.level], "%s", line.message)
        except Exception:  # a handler of the program failed; the next line may fare better
            pass


def start() -> None:
    """Starts the thread that reads the lines, once in each process. It is not the library that calls
    into Python: the thread that logs may hold locks that a thread with the interpreter's lock waits
    for."""
    global _reader
    if _reader is not None:
        return
    _reader = threading.Thread(target=_read, name="echotrain-log", daemon=True)
    try:
        _reader.start()
    except RuntimeError:  # there is no room for a thread, or the interpreter is about to end
        return
    native.LogQueue.open()


def _end() -> None:
    native.LogQueue.close()  # the reader ends after the lines that are left
    if _reader is not None and _reader.ident is not None:
        _reader.join(timeout=1)


def _after_fork() -> None:
    global _reader
    _reader = None  # threads do not survive


# Registered before those that close runs and pipelines, and so called after them.
atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
