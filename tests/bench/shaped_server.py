"""A web server whose rate is limited: a real one on the loopback (nginx where it is installed, else Python's http.server) behind a
proxy that shapes what it answers. For benchmarks of what reads over a network.

    with WebServer(folder) as server, ShapedProxy(server.port, Profile.bursty(rate)) as proxy:
        ...  # read proxy.url + "/file"

A profile says how many bytes may have been delivered at a time; all connections share that. Several links at once have a profile for
each beginning of a path, `{"slow": ..., "fast": ...}`: what the server has as "/slow/file" comes over the slow one. Allowance that nobody
takes is lost but for `burst_bytes`, as with a link's: a reader that pauses does not catch up later.
"""

import contextlib
import dataclasses
import functools
import http.server
import math
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

CHUNK = 65536


@dataclasses.dataclass(frozen=True)
class Profile:
    """`rate` bytes a second on average; `share_at(seconds)` of it at a time, 1 on average over a period."""
    name: str
    rate: float
    share_at: object = lambda seconds: 1.0
    latency: float = 0.0  # seconds before each answer
    burst_bytes: int = 65536

    @classmethod
    def steady(cls, rate, **others):
        return cls("steady", rate, **others)

    @classmethod
    def bursty(cls, rate, times=4, period=2.0, **others):
        """`times` the rate for a while, then nothing."""
        return cls("bursty", rate, lambda seconds: times if seconds % period < period / times else 0.0, **others)

    @classmethod
    def drifting(cls, rate, swing=3.0, period=8.0, **others):
        """Between the most and `swing` times less, slowly and smoothly; falling at first."""
        depth = math.log(swing) / 2
        wave = lambda phase: math.exp(-depth * math.sin(2 * math.pi * phase))
        mean = sum(wave(i / 1000) for i in range(1000)) / 1000
        return cls("drifting", rate, lambda seconds: wave(seconds / period) / mean, **others)


class WebServer:
    """Serves a folder on the loopback; `kind` says by which program."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.port = free_port()
        self._end = contextlib.ExitStack()
        nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        self.kind = "nginx" if nginx else "http.server"
        self._start_nginx(nginx) if nginx else self._start_python()
        wait_for(self.port)

    def _start_nginx(self, program):
        root = self._end.enter_context(tempfile.TemporaryDirectory(prefix="shaped-nginx-"))
        config = pathlib.Path(root, "nginx.conf")
        paths = " ".join(f"{part}_temp_path {root}/{part};" for part in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config.write_text(f"daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\nevents {{}}\n"
                          f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{self.port}; root {self.folder}; }} }}\n")
        process = subprocess.Popen([program, "-p", root, "-c", str(config)], stderr=subprocess.DEVNULL)
        self._end.callback(process.wait)
        self._end.callback(process.terminate)

    def _start_python(self):
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), functools.partial(Quiet, directory=str(self.folder)))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self._end.callback(thread.join)
        self._end.callback(server.shutdown)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end.close()


class Allowance:
    """How many bytes may go out, of all connections together."""

    def __init__(self, profile):
        self.profile = profile
        self._lock = threading.Lock()
        self._begin = self._last = time.monotonic()
        self._bytes = 0.0

    def take(self, most, stopped):
        """Waits for some of `most` bytes; says how many. 0 once `stopped` is set."""
        while not stopped.is_set():
            with self._lock:
                now = time.monotonic()
                self._bytes += self.profile.rate * self.profile.share_at(now - self._begin) * (now - self._last)
                self._bytes = min(self._bytes, self.profile.burst_bytes)
                self._last = now
                given = min(most, int(self._bytes))
                if given >= min(most, 512):
                    self._bytes -= given
                    return given
            time.sleep(0.002)
        return 0


class Link:
    """What a connection reads over: the link that the path of its latest request begins with, or else the one without a name."""

    def __init__(self, allowances):
        self._allowances = allowances
        self.allowance = None

    def choose(self, request):
        name = request.split(b"/", 2)[1].decode()
        self.allowance = self._allowances.get(name) or self._allowances[""]


class ShapedProxy:
    """Passes connections on to a port; answers come as the profile allows. `sent` counts their bytes."""

    def __init__(self, port, profile):
        self._target = port
        profiles = profile if isinstance(profile, dict) else {"": profile}
        self._allowances = {name: Allowance(profile) for name, profile in profiles.items()}
        self._stopped = threading.Event()
        self._threads, self.sent = [], 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._run(self._accept)

    def _run(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments)
        self._threads = [running for running in self._threads if running.is_alive()] + [thread]
        thread.start()

    def _accept(self):
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)
                for end in (client, server):
                    end.settimeout(0.1)
                link = Link(self._allowances)
                self._run(self._pass_on, client, server, link, False)
                self._run(self._pass_on, server, client, link, True)

    def _pass_on(self, source, target, link, shaped):
        """Until one side closes its connection."""
        with contextlib.suppress(OSError):
            for data in self._received(source):
                if not shaped:
                    link.choose(data)
                    time.sleep(link.allowance.profile.latency)
                    target.sendall(data)
                    continue
                while data:
                    part = link.allowance.take(len(data), self._stopped)
                    if part == 0:
                        return
                    send_all(target, data[:part], self._stopped)
                    self.sent += part
                    data = data[part:]
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            if shaped:
                end.close()

    def _received(self, source):
        while not self._stopped.is_set():
            try:
                data = source.recv(CHUNK)
            except TimeoutError:
                continue
            if not data:
                return
            yield data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stopped.set()
        for thread in list(self._threads):
            thread.join()
        self._listener.close()


def send_all(target, data, stopped):
    """A reader that pauses is waited for."""
    data = memoryview(data)
    while data and not stopped.is_set():
        with contextlib.suppress(TimeoutError):
            data = data[target.send(data):]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(port, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
            return
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {port} after {seconds} s")
