"""Runs programs that may crash, hang or say too much, and always comes back with what happened."""

import os
import signal
import subprocess
import tempfile
import time

TAIL = 6000  # characters of the output that are kept

_running = set()


class Ended:
    """How a program ended: `status` is ok, failed (an exit status), crashed (a signal), timed out or not started."""

    def __init__(self, status, code, seconds, output, note=""):
        self.status, self.code, self.seconds, self.output, self.note = status, code, seconds, output, note

    def as_json(self):
        out = {"status": self.status, "exit_code": self.code, "seconds": round(self.seconds, 2), "tail": self.output[-TAIL:]}
        if self.code is not None and self.code < 0:
            out["signal"] = signal_name(-self.code)
        if self.note:
            out["note"] = self.note
        return out


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _end(process):
    """Ends a program with all it started. One that waits within the driver cannot be ended; nobody waits for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(timeout=5)
        return ""
    except subprocess.TimeoutExpired:
        return f"process {process.pid} could not be ended: it waits within the kernel or the driver"


def end_all():
    for process in list(_running):
        _end(process)


def _wait(process, seconds, silent, output):
    """Waits for the end of a program, at most `seconds`, and at most `silent` without a word of it. "" or why it waits no more."""
    begin = heard = time.monotonic()
    size = 0
    while True:
        now = time.monotonic()
        if now - begin >= seconds:
            return f"ended after {seconds:.0f} s. "
        if now - heard >= silent:
            return f"ended after {silent:.0f} s without a word. "
        try:
            process.wait(timeout=max(0.01, min(1, begin + seconds - now, heard + silent - now)))
            return ""
        except subprocess.TimeoutExpired:
            grown = os.fstat(output.fileno()).st_size
            if grown != size:
                size, heard = grown, time.monotonic()


def run(command, seconds, environment=None, folder=None, text="", silent=3600):
    """Runs `command` on `text` for at most `seconds`, and no longer than `silent` seconds without output, in a session of its
    own, with both outputs in one."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
        given.write(text.encode())
        given.seek(0)
        try:
            process = subprocess.Popen(command, stdin=given, stdout=output, stderr=subprocess.STDOUT,
                                       env=environment, cwd=folder, start_new_session=True)
        except OSError as error:
            return Ended("not started", None, 0, f"{command[0]}: {error}")
        _running.add(process)
        note = _wait(process, max(seconds, 0.1), silent, output)
        status = "timed out" if note else "ok" if process.returncode == 0 else "crashed" if process.returncode < 0 else "failed"
        note += _end(process)  # also what it left behind in its session
        _running.discard(process)
        code = process.returncode
        return Ended(status, code, time.monotonic() - begin, _text_of(output), note.strip())


def _text_of(output):
    most = 4 << 20  # a program that repeats itself for minutes
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - most))
    return output.read().decode(errors="replace")
