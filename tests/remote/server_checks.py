"""What fault_matrix.py checks of whole servers: lists of objects, refusals, certificates, handshakes and pauses that they ask for."""

import contextlib
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import echotrain as et
from certificates import FUTURE, PAST, PRESENT, self_signed
from faulty_server import DATE, Server, listing
from reading import ALLOWED, LONGEST_PAUSE_S, SLACK_S, Reading, longest_pauses_s
from server_faults import PASSING, Fault

# Lists of objects ------------------------------------------------------------------------------------


def next_token(token):
    return f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"


LISTS = {
    "nothing": lambda path: b"",
    "a page for people": lambda path: b"<html>Please log in</html>",
    "a list that is cut short": lambda path: listing(["a.txt"])[:-10],
    "the same page for ever": lambda path: listing(["a.txt"], next_token("again")),
    "two pages in a circle": lambda path: listing([], next_token("b" if "token=a" in path else "a")),
    "the same page under ever new tokens": lambda path: listing(["a.txt", "b.txt"], next_token(time.monotonic_ns())),
    "empty pages for ever": lambda path: listing([], next_token(time.monotonic_ns())),
    "more, and no way to ask for it": lambda path: listing(["a.txt"], "<IsTruncated>true</IsTruncated>"),
    "a key of a megabyte": lambda path: listing(["a" * 1_000_000 + ".txt"]),
    "a key of stars and dashes": lambda path: listing(["a" + "-" * 1020]),
    "keys within keys": lambda path: b"<ListBucketResult>" + b"<Key>" * 2_000_000 + b"</Key></ListBucketResult>",
    "keys without an end": lambda path: b"<ListBucketResult>" + b"<Key>" * 2_000_000 + b"</ListBucketResult>",
    "a key of entities": lambda path: listing(["&lt;&amp;" * 1_000_000]),
    "a token of eight megabytes": lambda path: listing(["a.txt"], next_token("x" * 8_000_000)),
}


def lists(server, samples):
    """Lists of objects that lie: an error after few of their pages. `samples`: of each of the files."""
    for name, answer in LISTS.items():
        pages = []

        def listed(path, answer=answer, pages=pages):
            pages.append(path)
            return answer(path)

        server.begin(None)
        server.listing = listed
        reading = Reading("s3://bucket/a*-*-*-*.txt", 120, remote_retries=0, remote_timeout_s=20)
        assert not reading.late, f"list of objects, {name}: no end after {reading.seconds:.1f} s"
        assert isinstance(reading.error, ALLOWED), f"list of objects, {name}: {reading.error!r}"
        assert len(pages) < 1100, f"list of objects, {name}: {len(pages)} pages were read"
    server.listing = lambda path: listing(["z.txt"] if "token=2" in path else ["a.txt"], "" if "token=2" in path else next_token("2"))
    reading = Reading("s3://bucket/a*.txt", SLACK_S)
    assert reading.error is None and len(reading.samples) == samples, f"list of objects: {reading.error}"
    server.listing = None
    return len(LISTS)


# Refusals of a store ---------------------------------------------------------------------------------

SECRET = "c2VjcmV0"  # stands for the token, which S3 repeats in its answer
# Status, code, what else the answer has, and what the error says that the user has to do.
REFUSALS = (
    ("400 Bad Request", "ExpiredToken", f"<Token-0>{SECRET}</Token-0>", "get new temporary credentials", "AWS_SESSION_TOKEN"),
    ("403 Forbidden", "ExpiredToken", f"<Token-0>{SECRET}</Token-0>", "get new temporary credentials", "AWS_SESSION_TOKEN"),
    ("400 Bad Request", "InvalidToken", f"<Token-0>{SECRET}</Token-0>", "set AWS_SESSION_TOKEN"),
    ("403 Forbidden", "InvalidToken", f"<Token-0>{SECRET}</Token-0>", "set AWS_SESSION_TOKEN"),
    ("400 Bad Request", "TokenRefreshRequired", "", "get new temporary credentials"),
    ("403 Forbidden", "InvalidAccessKeyId", f"<AWSAccessKeyId>{SECRET}</AWSAccessKeyId>", "set AWS_ACCESS_KEY_ID"),
    ("403 Forbidden", "SignatureDoesNotMatch", f"<StringToSign>{SECRET}</StringToSign>", "set AWS_SECRET_ACCESS_KEY"),
    ("403 Forbidden", "AccessDenied", "", "s3:GetObject", "s3:ListBucket"),
    ("403 Forbidden", "RequestTimeTooSkewed", "<ServerTime>2026-11-30T00:00:00Z</ServerTime>", "clock"),
    ("301 Moved Permanently", "PermanentRedirect", "<Endpoint>bucket.s3.eu-west-1.amazonaws.com</Endpoint>", "set AWS_REGION or AWS_ENDPOINT_URL"),
    ("301 Moved Permanently\r\nx-amz-bucket-region: eu-west-1", "PermanentRedirect", "", "'eu-west-1', not in 'us-east-1': set AWS_REGION"),
    ("307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/", "TemporaryRedirect", "", "set AWS_REGION or AWS_ENDPOINT_URL"),
    ("400 Bad Request", "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>", "'eu-west-1', not in 'us-east-1': set AWS_REGION"),
    ("503 Slow Down", "SlowDown", "", "tried 2 times", "lower 'remote_connections' or raise 'remote_retries'"),
    ("403 Forbidden\r\nX-Text: \xff", "\xff\x01" * 1000, "", "403"),
)


def refusals(server):
    """Errors name the address, the store's code and what the user has to do, and not what is secret."""
    server.begin(None)
    for status, code, more, *remedies in REFUSALS:
        body = f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>Told by the store.</Message>{more}</Error>".encode("latin-1")
        server.refusal = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
        for address, named in (("s3://bucket/a.txt", "/a.txt"), ("s3://bucket/a*.txt", "bucket/")):
            reading = Reading(address, longest_pauses_s(1) + SLACK_S, remote_retries=1)
            text = str(reading.error)
            assert isinstance(reading.error, et.errors.DataIOError) and not reading.late, f"{address}, {status}: {reading.error!r}"
            shown = code if code.isascii() else ""
            missing = [part for part in (named, shown, *remedies) if part not in text]
            assert not missing and SECRET not in text, f"{address}, {status}, without {missing}: {text}"
    server.refusal = b""
    return len(REFUSALS)


# Certificates and handshakes -------------------------------------------------------------------------


@contextlib.contextmanager
def trusting(path):
    before = os.environ.pop("SSL_CERT_FILE")
    if path:
        os.environ["SSL_CERT_FILE"] = str(path)
    try:
        yield
    finally:
        os.environ["SSL_CERT_FILE"] = before


def certificates(authority, files, samples):
    """Bad certificates are an error at once, which names the address and the cause; the right one is accepted."""
    other = authority.folder / "other"
    other.mkdir()
    bad = (
        # certificate; host that is asked; the authorities' file; words of the error
        (authority.sign("expired", begin=PAST, end=PRESENT), "localhost", authority.certificate, "has expired"),
        (authority.sign("early", begin=FUTURE), "localhost", authority.certificate, "is not yet valid"),
        (authority.sign("elsewhere", host="elsewhere.test"), "localhost", authority.certificate, "does not match|matches target"),
        (authority.sign("by-name"), "127.0.0.1", authority.certificate, "does not match|matches target"),
        (authority.sign("unknown"), "localhost", None, "local issuer certificate"),
        (authority.sign("unlike"), "localhost", self_signed(other, "another")[0], "local issuer certificate"),
        (self_signed(other, "own"), "localhost", authority.certificate, "self.signed certificate"),
        (authority.sign("no-file"), "localhost", authority.folder / "nothing.pem", "nothing.pem"),
        (authority.sign("no-certificate"), "localhost", authority.settings, "authority.cnf"),
    )
    for certificate, host, trusted, why in bad:
        server = Server(files, certificate)
        with trusting(trusted):
            address = f"https://{host}:{server.port}/files/a.txt"
            reading = Reading(address, SLACK_S, remote_retries=8)  # whose pauses would take longer
        text = str(reading.error)
        assert isinstance(reading.error, et.errors.DataIOError) and not reading.late, f"{certificate[0]}, {host}: {reading.error!r}"
        assert address in text and re.search(why, text), f"not '{why}': {text}"
        server.close()
    server = Server(files, authority.sign("good"))
    reading = Reading(f"https://localhost:{server.port}/files/a.txt", SLACK_S, remote_retries=0)
    assert reading.error is None and len(reading.samples) == samples, f"a good certificate: {reading.error}"
    server.close()
    return len(bad)


def handshakes():
    """A server that does not come to speak TLS is an error in time."""
    timeout_s, answers = 1, {"says nothing": None, "goes away": b"", "speaks HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks nonsense": bytes(2000)}
    for name, answer in answers.items():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def serve(listener=listener, answer=answer):
                held = []
                with contextlib.suppress(OSError):
                    while True:
                        sock = listener.accept()[0]
                        held.append(sock)
                        if answer is not None:
                            sock.recv(1)
                            sock.sendall(answer)
                            sock.close()
            threading.Thread(target=serve, daemon=True).start()
            port = listener.getsockname()[1]
            reading = Reading(f"https://localhost:{port}/a.txt", 2 * timeout_s + longest_pauses_s(1) + SLACK_S, remote_timeout_s=timeout_s, remote_retries=1)
            listener.shutdown(socket.SHUT_RDWR)
        assert not reading.late, f"a server that {name}: no end after {reading.seconds:.1f} s"
        assert isinstance(reading.error, et.errors.DataIOError) and f"localhost:{port}" in str(reading.error), f"a server that {name}: {reading.error!r}"
    return len(answers)


# Pauses ----------------------------------------------------------------------------------------------

LONG = ("1000000000", "1e300", "inf", "9" * 4000, str(LONGEST_PAUSE_S + 1))
IGNORED = ("-1000000000", "-inf", "nan", "soon", "", DATE, "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "\xff\xfe")


def pauses(files, samples):
    """A server that asks for a pause (Retry-After) gets it, and not more than is documented. Reads of one server each, side by side."""
    failures = []

    def check(asked, least_s, most_s, cancel_s=None):
        def act(connection, answer, request):
            answer.refuse("503 Slow Down", Retry_After=asked)

        server = Server(files)
        server.begin(lambda request, tries: Fault("a pause", act, PASSING) if tries == 0 and request.begin == 0 else None)
        reading = Reading(f"http://localhost:{server.port}/files/a.txt", cancel_s or most_s, remote_retries=1)
        server.close()
        is_read = reading.error is None and len(reading.samples) == samples
        good = isinstance(reading.error, et.errors.CancelledError) if cancel_s else is_read
        if not good or not least_s <= reading.seconds <= most_s:
            failures.append(f"Retry-After {ascii(asked[:40])}: {reading.seconds:.1f} s, {reading.error!r}")

    checks = [(asked, LONGEST_PAUSE_S, LONGEST_PAUSE_S + SLACK_S) for asked in LONG]
    checks += [(asked, 0, longest_pauses_s(1) + SLACK_S) for asked in IGNORED]
    checks += [("2", 2, 2 + SLACK_S), ("1000000000", 0, 0.5 + SLACK_S, 0.5)]  # the last one is cancelled meanwhile
    with ThreadPoolExecutor(len(checks)) as pool:
        for done in [pool.submit(check, *args) for args in checks]:
            done.result()
    assert not failures, "; ".join(failures)
    return len(checks)
