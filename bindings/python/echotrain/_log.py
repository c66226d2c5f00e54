"""Passes the library's log lines to the module logging."""

import atexit
import logging
import threading

from . import native

_FOREVER_SECONDS = 1e6
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_ABOUT_BAD_RECORD = 1


def _read() -> None:
    logger, bad_records = logging.getLogger("echotrain"), logging.getLogger("echotrain.bad_records")
    while True:
        line = native.LogQueue.next(_FOREVER_SECONDS)
        if not line.valid:
            return
        try:
            (bad_records if line.subject == _ABOUT_BAD_RECORD else logger).log(_LEVELS[line.level], "%s", line.message)
        except Exception:  # a handler of the program failed; the next line may fare better
            pass


def start() -> None:
    """Starts the thread that reads the lines. It is not the library that calls into Python: the
    thread that logs may hold locks that a thread with the interpreter's lock waits for."""
    native.LogQueue.open()
    reader = threading.Thread(target=_read, name="echotrain-log", daemon=True)
    reader.start()

    def end() -> None:
        native.LogQueue.close()  # the reader ends after the lines that are left
        reader.join(timeout=1)

    atexit.register(end)
