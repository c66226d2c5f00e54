"""What goes wrong with an answer: the faults of fault_matrix.py.

A fault is a function of the connection, the right answer and the request. It changes the answer, which is then sent, or sends something
itself and raises Gone.
"""

import gzip
from typing import Callable, NamedTuple

from faulty_server import DATE, Gone

HARMLESS, PASSING, LASTING = "harmless", "passing", "lasting"


class Fault(NamedTuple):
    name: str
    act: Callable
    # HARMLESS: the bytes have to come all the same. PASSING: they have to come with another try. LASTING: an error is as good.
    kind: str
    slow: bool = False  # takes a time-out


FAULTS = {}


def fault(kind, slow=False):
    def add(act):
        name = act.__name__.replace("_", " ")
        FAULTS[name] = Fault(name, act, kind, slow)
        return act
    return add


# Connections -----------------------------------------------------------------------------------------


@fault(PASSING)
def reset_before_the_answer(c, a, r):
    c.reset()


@fault(PASSING)
def reset_within_the_head(c, a, r):
    c.send(a.head()[:30])
    c.reset()


@fault(PASSING)
def reset_within_the_body(c, a, r):
    c.send(a.head() + a.body[:len(a.body) // 2])
    c.reset()


@fault(PASSING)
def closed_before_the_answer(c, a, r):
    raise Gone


@fault(PASSING)
def closed_within_the_body(c, a, r):
    c.send(a.head() + a.body[:len(a.body) // 2])
    raise Gone


@fault(PASSING)
def half_closed_before_the_answer(c, a, r):
    c.finish()


@fault(PASSING)
def half_closed_within_the_body(c, a, r):
    c.send(a.head() + a.body[:-1])
    c.finish()


@fault(HARMLESS)
def half_closed_after_the_answer(c, a, r):
    c.send(a.head() + a.body)
    c.finish()


@fault(HARMLESS)
def closed_after_the_answer(c, a, r):
    a.close = True


@fault(PASSING, slow=True)
def stalled_before_the_answer(c, a, r):
    c.hang()


@fault(PASSING, slow=True)
def stalled_within_the_head(c, a, r):
    c.send(a.head()[:40])
    c.hang()


@fault(PASSING, slow=True)
def stalled_within_the_body(c, a, r):
    c.send(a.head() + a.body[:len(a.body) // 3])
    c.hang()


@fault(PASSING, slow=True)
def dripping_head(c, a, r):
    c.drip(a.head(), 0.1)
    c.hang()


@fault(PASSING, slow=True)
def dripping_body(c, a, r):
    c.send(a.head())
    c.drip(a.body, 0.05)


@fault(HARMLESS)
def slow_answer(c, a, r):
    c.wait(0.1)
    half = len(a.body) // 2
    c.send(a.head() + a.body[:half])
    c.wait(0.1)
    c.send(a.body[half:])
    raise Gone


# Statuses --------------------------------------------------------------------------------------------


def refuses(status, kind, name, **headers):
    def act(c, a, r):
        a.refuse(status, **headers)
    FAULTS[name] = Fault(name, act, kind)


for status in ("408 Request Timeout", "429 Too Many Requests", "500 Internal Server Error", "502 Bad Gateway", "503 Slow Down",
               "504 Gateway Timeout"):
    refuses(status, PASSING, f"status {status[:3]}")
for status in ("429 Too Many Requests", "503 Slow Down"):
    for after in ("0", "0.02", "-1", "soon", "nan", "1e-300", DATE, "\xff\xfe"):
        refuses(status, PASSING, f"status {status[:3]} with Retry-After {ascii(after)}", Retry_After=after)
for status in ("204 No Content", "205 Reset Content", "304 Not Modified", "400 Bad Request", "401 Unauthorized", "403 Forbidden",
               "404 Not Found", "410 Gone", "418 Teapot", "300 Multiple Choices", "226 IM Used", "099 Below", "999 Beyond"):
    refuses(status, LASTING, f"status {status[:3]}")
refuses("416 Range Not Satisfiable", LASTING, "status 416 without a length")
refuses("302 Found", LASTING, "redirect without an address")
refuses("302 Found", LASTING, "redirect to a file", Location="file:///etc/passwd")
refuses("302 Found", LASTING, "redirect to another protocol", Location="gopher://127.0.0.1:1/\xff")
refuses("302 Found", LASTING, "redirect to nobody", Location="http://127.0.0.1:1/")
refuses("302 Found", LASTING, "redirect to an address that is none", Location="http://[::bad")


@fault(LASTING)
def redirect_in_a_circle(c, a, r):
    a.refuse("302 Found", Location=r.path)


@fault(LASTING)
def status_416_of_a_file_that_is_there(c, a, r):
    a.refuse("416 Range Not Satisfiable", Content_Range=f"bytes */{r.total}", ETag='"v1"', Last_Modified=DATE)


@fault(LASTING)
def status_416_that_says_it_is_empty(c, a, r):
    a.refuse("416 Range Not Satisfiable", Content_Range="bytes */0", ETag='"v1"', Last_Modified=DATE)


# Parts -----------------------------------------------------------------------------------------------


@fault(LASTING)
def another_part(c, a, r):
    shift = 100 if r.begin == 0 else -100
    a.body = r.content[max(r.begin + shift, 0):r.end + shift]
    a.headers.update({"Content-Length": str(len(a.body)), "Content-Range": f"bytes {r.begin + shift}-{r.begin + shift + len(a.body) - 1}/{r.total}"})


@fault(LASTING)
def a_part_that_is_too_short(c, a, r):
    a.body = a.body[:-1]
    a.headers.update({"Content-Length": str(len(a.body)), "Content-Range": f"bytes {r.begin}-{r.end - 2}/{r.total}"})


@fault(LASTING)
def a_part_that_is_too_long(c, a, r):
    a.body += b"more"
    a.headers["Content-Length"] = str(len(a.body))


@fault(LASTING)
def the_whole_in_place_of_a_part(c, a, r):
    a.whole(r.content)


@fault(LASTING)
def a_part_as_the_whole(c, a, r):
    if r.begin > 0:  # from the beginning on, the file would just be that short
        a.whole(a.body)


@fault(LASTING)
def several_parts(c, a, r):
    del a.headers["Content-Range"]
    a.body = b"--b\r\nContent-Range: bytes 0-1/2\r\n\r\nxx\r\n--b--\r\n"
    a.headers.update({"Content-Type": "multipart/byteranges; boundary=b", "Content-Length": str(len(a.body))})


@fault(LASTING)
def an_empty_part(c, a, r):
    a.body = b""
    a.headers["Content-Length"] = "0"


@fault(LASTING)
def an_empty_whole(c, a, r):
    if r.begin > 0:
        a.whole(b"")


def ranges(name, text):
    def act(c, a, r):
        a.headers["Content-Range"] = text.format(begin=r.begin, last=r.end - 1, total=r.total)
    FAULTS[f"Content-Range {name}"] = Fault(f"Content-Range {name}", act, LASTING)


for name, text in (("empty", ""), ("of no number", "bytes all"), ("in other units", "lines {begin}-{last}/{total}"),
                   ("without an end", "bytes {begin}-/{total}"), ("in reverse", "bytes {last}-{begin}/{total}"),
                   ("of another length", "bytes {begin}-{last}/99999999"), ("of 2^64 - 1 bytes", "bytes {begin}-{last}/18446744073709551615"),
                   ("of 2^64 bytes", "bytes {begin}-{last}/18446744073709551616"), ("of a negative length", "bytes {begin}-{last}/-5"),
                   ("of 2^63 bytes", "bytes {begin}-{last}/9223372036854775808"), ("of no bytes", "bytes {begin}-{last}/0"),
                   ("in strange letters", "bytes \xff\xfe{begin}\x07-{last}/{total}"), ("without a length", "bytes {begin}-{last}/*")):
    ranges(name, text)


# Versions --------------------------------------------------------------------------------------------


@fault(LASTING)
def another_entity_tag(c, a, r):
    a.headers["ETag"] = '"v2"'


@fault(LASTING)
def another_time(c, a, r):
    a.headers["Last-Modified"] = "Thu, 22 Oct 2026 07:28:00 GMT"


@fault(LASTING)
def no_version(c, a, r):
    del a.headers["ETag"], a.headers["Last-Modified"]


@fault(LASTING)
def a_longer_file(c, a, r):
    a.headers["Content-Range"] = f"bytes {r.begin}-{r.end - 1}/{r.total + 7}"


# Lengths ---------------------------------------------------------------------------------------------


def lengths(name, text, kind=LASTING, slow=False):
    def act(c, a, r):
        a.headers["Content-Length"] = text.format(less=len(a.body) - 9, more=len(a.body) + 9, right=len(a.body))
        c.send(a.head() + a.body)
        raise Gone
    FAULTS[f"Content-Length {name}"] = Fault(f"Content-Length {name}", act, kind, slow)


for name, text in (("too small", "{less}"), ("negative", "-1"), ("of no number", "many"), ("of 2^63", "9223372036854775808"),
                   ("of 2^64", "18446744073709551617"), ("twice, once wrong", "{right}\r\nContent-Length: {more}"),
                   ("of two numbers", "{right}, {more}")):
    lengths(name, text)
lengths("too large", "{more}", PASSING)


@fault(PASSING, slow=True)
def Content_Length_too_large_and_a_stall(c, a, r):
    a.headers["Content-Length"] = str(len(a.body) + 9)
    c.send(a.head() + a.body)
    c.hang()


@fault(HARMLESS)
def HTTP_1_0_without_a_length(c, a, r):
    a.version = "HTTP/1.0"
    del a.headers["Content-Length"]
    c.send(a.head() + a.body)
    raise Gone


@fault(LASTING)
def HTTP_1_0_cut_short(c, a, r):
    a.version = "HTTP/1.0"
    del a.headers["Content-Length"]
    c.send(a.head() + a.body[:-5])
    raise Gone


@fault(LASTING)
def the_whole_without_a_length_cut_short(c, a, r):
    a.whole(r.content)
    del a.headers["Content-Length"]
    c.send(a.head() + a.body[:len(a.body) * 2 // 3])
    raise Gone


# Chunks ----------------------------------------------------------------------------------------------


def as_chunks(body, size=1000):
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


@fault(HARMLESS)
def chunks(c, a, r):
    c.chunked(a, as_chunks(a.body), b"0\r\n\r\n")
    a.close = True
    raise Gone


def chunk_fault(name, *pieces):
    def act(c, a, r):
        c.chunked(a, as_chunks(a.body[:2000]), *pieces)
        raise Gone
    FAULTS[f"chunks {name}"] = Fault(f"chunks {name}", act, LASTING)


for name, piece in (("without an end", b""), ("of no number", b"zz\r\nxx\r\n"), ("of 2^64 bytes", b"10000000000000000\r\n"),
                    ("of 2^64 - 1 bytes", b"ffffffffffffffff\r\nabc"), ("of a negative size", b"-5\r\nabc"),
                    ("of too many digits", b"0" * 5000 + b"5\r\nabcde\r\n0\r\n\r\n"), ("with a long extension", b"5;" + b"x" * 300_000),
                    ("that end too early", b"5\r\nabc\r\n0\r\n\r\n"), ("with bad trailers", b"0\r\n\xff\xff\r\nno colon\r\n\r\n")):
    chunk_fault(name, piece)


# Encodings and heads ---------------------------------------------------------------------------------


@fault(LASTING)
def gzip_that_was_not_asked_for(c, a, r):
    a.body = gzip.compress(a.body)
    a.headers.update({"Content-Encoding": "gzip", "Content-Length": str(len(a.body))})


@fault(LASTING)
def an_encoding_that_nobody_knows(c, a, r):
    a.headers["Content-Encoding"] = "\xe9" * 5000


@fault(HARMLESS)
def the_encoding_identity(c, a, r):
    a.headers["Content-Encoding"] = "identity"


def head_fault(name, kind, change):
    def act(c, a, r):
        c.send(change(a) + a.body)
        raise Gone
    FAULTS[name] = Fault(name, act, kind)


head_fault("a header of 300,000 bytes", LASTING, lambda a: a.head()[:-2] + b"X: " + b"x" * 300_000 + b"\r\n\r\n")
head_fault("5,000 headers", LASTING, lambda a: a.head()[:-2] + b"".join(b"X-%d: %s\r\n" % (i, b"x" * 90) for i in range(5000)) + b"\r\n")
head_fault("a header without a colon", LASTING, lambda a: a.head()[:-2] + b"no colon\r\n\r\n")
head_fault("a header with a NUL", LASTING, lambda a: a.head()[:-2] + b"X: a\0b\r\n\r\n")
head_fault("headers of other bytes", LASTING, lambda a: a.head()[:-2] + bytes(range(128, 256)) + b": \xff\r\n\r\n")
head_fault("a header over two lines", LASTING, lambda a: a.head()[:-2] + b"X: a\r\n b\r\n\r\n")
head_fault("line feeds alone", HARMLESS, lambda a: a.head().replace(b"\r\n", b"\n"))
head_fault("no head", LASTING, lambda a: b"")
head_fault("a head of another protocol", LASTING, lambda a: b"SSH-2.0-OpenSSH_9.2\r\n")
head_fault("HTTP of version 9.9", LASTING, lambda a: a.head().replace(b"HTTP/1.1", b"HTTP/9.9"))
head_fault("a status of no number", LASTING, lambda a: a.head().replace(b"206", b"two"))
head_fault("one 100 Continue", HARMLESS, lambda a: b"HTTP/1.1 100 Continue\r\n\r\n" + a.head())
head_fault("10,000 times 103 Early Hints", LASTING, lambda a: b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 10_000 + a.head())
head_fault("an upgrade that was not asked for", LASTING, lambda a: b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n" + a.head())


@fault(LASTING, slow=True)
def headers_without_end(c, a, r):
    c.send(a.head()[:-2])
    for i in range(1_000_000):
        c.send(b"X-%d: %s\r\n" % (i, b"x" * 1000))
    raise Gone


@fault(LASTING)
def an_answer_twice(c, a, r):
    c.send(a.head() + a.body)  # the second one would be that to the next request
