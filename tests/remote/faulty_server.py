"""A server on the loopback whose answers go wrong as a script says: HTTP, HTTPS and the part of S3 that EchoTrain asks for.

It speaks through the socket itself, because most of its faults are answers that a library for servers would not send.
"""

import socket
import ssl
import struct
import threading

PATIENCE_S = 120  # after which a connection that hangs on purpose is given up
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


class Request:
    """A request and what a right answer to it is."""

    def __init__(self, head, content):
        lines = head.decode("latin-1").split("\r\n")
        self.path = lines[0].split(" ")[1]
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        self.content, self.total = content, len(content)
        self.begin, self.end = 0, self.total  # of the part that is asked for
        if "range" in headers:
            first, last = headers["range"].removeprefix("bytes=").split("-")
            self.begin, self.end = int(first), min(int(last) + 1, self.total)

    def part(self):
        return self.content[self.begin:self.end]


class Answer:
    """An answer that faults change before it is sent; right as it is made."""

    def __init__(self, request):
        self.version, self.status = "HTTP/1.1", "206 Partial Content"
        self.body = request.part()
        self.headers = {"ETag": '"v1"', "Last-Modified": DATE, "Content-Length": str(len(self.body)),
                        "Content-Range": f"bytes {request.begin}-{request.end - 1}/{request.total}"}
        if request.begin >= request.total:
            self.status, self.body = "416 Range Not Satisfiable", b""
            self.headers.update({"Content-Length": "0", "Content-Range": f"bytes */{request.total}"})
        self.close = False

    def head(self):
        lines = [f"{self.version} {self.status}", *(f"{name}: {value}" for name, value in self.headers.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    def whole(self, body):
        self.status, self.body = "200 OK", body
        self.headers.pop("Content-Range", None)
        self.headers["Content-Length"] = str(len(body))

    def refuse(self, status, **headers):
        self.status, self.body = status, b"<Error><Code>Refused</Code></Error>"
        self.headers = {"Content-Length": str(len(self.body)), **{name.replace("_", "-"): text for name, text in headers.items()}}


def listing(keys, more=""):
    """A list of objects, as S3 gives it."""
    rows = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    return f'<?xml version="1.0"?><ListBucketResult>{rows}{more}</ListBucketResult>'.encode()


class Gone(Exception):
    """The connection is of no more use."""


class Connection:
    """One client's connection. `send` may be slow on purpose; all waits end with the server."""

    def __init__(self, server, sock):
        self.server, self.sock = server, sock

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Gone from error

    def wait(self, seconds=PATIENCE_S):
        self.server.over.wait(seconds)

    def hang(self):
        self.wait()
        raise Gone

    def finish(self):
        """A half-closed connection: the server sends no more, and goes on listening."""
        try:
            if isinstance(self.sock, ssl.SSLSocket):
                self.sock.unwrap()
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise Gone from error
        self.hang()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone

    def drip(self, data, pause):
        for i in range(len(data)):
            if self.server.over.is_set():
                raise Gone
            self.send(data[i:i + 1])
            self.wait(pause)

    def chunked(self, answer, *pieces):
        answer.headers.pop("Content-Length", None)
        answer.headers["Transfer-Encoding"] = "chunked"
        self.send(answer.head())
        for piece in pieces:
            self.send(piece)


class Server:
    """Serves `files`, name to bytes. `script` says what becomes of a request: a function of the request and of how often the same
    part was asked for before, which returns a fault (see server_faults.py) or None. `listing` answers requests for a list of objects,
    by their path, and `refusal`, if it is set, all requests."""

    def __init__(self, files, certificate=None):
        self.files, self.script, self.listing, self.refusal = files, None, None, b""
        self.over = threading.Event()  # a trial is over: whoever hangs on its behalf lets go
        self.lock, self.seen, self.requests, self.hurt = threading.Lock(), {}, 0, []
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def begin(self, script):
        with self.lock:
            self.over.set()
            self.over = threading.Event()
            self.script, self.seen, self.requests, self.hurt = script, {}, 0, []

    def close(self):
        self.over.set()
        self.socket.close()

    def accept(self):
        while True:
            try:
                sock, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        with sock:
            sock.settimeout(PATIENCE_S)
            try:
                if self.context:
                    sock = self.context.wrap_socket(sock, server_side=True)
                while self.answer_one(sock):
                    continue
            except (Gone, OSError, ValueError):
                pass  # a client that went away is what most faults are about
            finally:
                sock.close()

    def answer_one(self, sock):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = sock.recv(65536)
            if not more:
                return False
            head += more
        path = head.split(b" ", 2)[1].decode("latin-1")
        name = path.split("?")[0].rsplit("/", 1)[-1]
        if self.refusal:
            sock.sendall(self.refusal)
            return True
        if "list-type=2" in path and self.listing:
            body = self.listing(path)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return True
        if name not in self.files:
            sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        request = Request(head, self.files[name])
        answer, connection = Answer(request), Connection(self, sock)
        with self.lock:
            self.requests += 1
            tries = self.seen[request.path, request.begin, request.end] = self.seen.get(
                (request.path, request.begin, request.end), 0) + 1
            fault = self.script(request, tries - 1) if self.script else None
            if fault:
                self.hurt.append(fault.name)
        if fault:
            fault.act(connection, answer, request)
        connection.send(answer.head() + answer.body)
        return not answer.close

