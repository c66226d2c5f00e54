"""Reading over the network, from real servers on the loopback: nginx with TLS, an S3 store that verifies signatures
(s3_server.py), and one of our own that misbehaves on request. run.sh prepares what it needs and runs it.
"""

import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import numpy as np

import echotrain as et

for room in ("bindings", "cli"):
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / room))
from png import png  # noqa: E402
from support import free_port  # noqa: E402

LINES = [f"line {i} of a text that is long enough to need several parts".encode() for i in range(3000)]


def wait_for(port, process):
    for _ in range(2400):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended at once: {process.args}")
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the server does not listen: {process.args}")


def lines_of(pattern, **options):
    options = {"remote_part_bytes": 16384, "epochs": 1, **options}
    with et.Pipeline([et.stages.text_lines(pattern, shuffle_shards=False)], **options) as p:
        return [bytes(sample["text"]) for sample in p]


class Content:
    """A folder that all servers serve."""

    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="echotrain-remote-"))
        files = self.root / "files"
        files.mkdir()
        text = b"\n".join(LINES) + b"\n"
        (files / "a.txt").write_bytes(text)
        (files / "empty.txt").write_bytes(b"")
        (files / "with space+plus ü.txt").write_bytes(text)
        import gzip
        (files / "a.txt.gz").write_bytes(gzip.compress(text))
        for label in "01":
            (self.root / "images" / label).mkdir(parents=True)
        for i in range(40):
            (self.root / "images" / str(i % 2) / f"{i}.png").write_bytes(png(np.full((8, 8, 3), i, np.uint8)))
        et.pack_folder(self.root / "images", files / "train", per_shard=10)
        et.pack_folder(self.root / "images", files / "train", per_shard=10, format="fast")
        self.files = files

    def remove(self):
        shutil.rmtree(self.root)


content = None


def setUpModule():
    global content
    content = Content()


def tearDownModule():
    content.remove()


def digest(source, **options):
    with et.Pipeline([source, et.stages.label(), et.stages.decode(), et.stages.batch(8)], epochs=1, seed=3, **options) as p:
        return [(b["image"].sum(), tuple(b["label"])) for b in p]


class Nginx(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        root = cls.root = pathlib.Path(tempfile.mkdtemp(prefix="echotrain-nginx-"))
        cls.port = cls.tls_port = free_port()
        while cls.tls_port == cls.port:
            cls.tls_port = free_port()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", root / "key.pem",
                        "-out", root / "cert.pem"], check=True, capture_output=True)
        (root / "nginx.conf").write_text(f"""
            daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;
            events {{}}
            http {{
              access_log {root}/access.log;
              client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3;
              uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5;
              server {{ listen 127.0.0.1:{cls.port}; root {content.files};
                        location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }} }}
              server {{ listen 127.0.0.1:{cls.tls_port} ssl; root {content.files};
                        ssl_certificate {root}/cert.pem; ssl_certificate_key {root}/key.pem;
                        location /open/ {{ return 302 http://127.0.0.1:{cls.port}/a.txt; }} }}
            }}""")
        cls.process = subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-p", str(root), "-c", str(root / "nginx.conf")],
                                       stderr=subprocess.DEVNULL)
        wait_for(cls.tls_port, cls.process)
        os.environ["SSL_CERT_FILE"] = str(root / "cert.pem")
        cls.url = f"https://localhost:{cls.tls_port}"

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        cls.process.wait()
        os.environ.pop("SSL_CERT_FILE")
        shutil.rmtree(cls.root)

    def test_lines_plain_and_compressed(self):
        self.assertEqual(lines_of(f"{self.url}/a.txt"), LINES)
        self.assertEqual(lines_of(f"{self.url}/a.txt.gz"), LINES)
        self.assertEqual(lines_of(f"{self.url}/{{a,empty}}.txt"), LINES)

    def test_shards_are_those_of_the_disk(self):
        local = digest(et.stages.webdataset(str(content.files / "train-{000000..000003}.tar.zst")))
        self.assertEqual(len(local), 5)
        self.assertEqual(digest(et.stages.webdataset(f"{self.url}/train-{{000000..000003}}.tar.zst")), local)
        interleaved = et.stages.interleave([et.stages.webdataset(f"{self.url}/train-{{000000..000003}}.tar.zst")], cycle_length=3)
        self.assertEqual(sum(len(labels) for _, labels in digest(interleaved)), 40)

    def test_fast_shards_need_the_cache(self):
        pattern = f"{self.url}/train-{{000000..000003}}.ets"
        local = digest(et.stages.fast_shard(str(content.files / "train-*.ets")))
        with self.assertRaisesRegex(et.EchoTrainError, "remote_cache_dir"):
            digest(et.stages.fast_shard(pattern))
        with tempfile.TemporaryDirectory() as cache:
            self.assertEqual(digest(et.stages.fast_shard(pattern), remote_cache_dir=cache), local)

    def test_certificates_are_verified(self):
        trusted = os.environ.pop("SSL_CERT_FILE")
        try:
            with self.assertRaisesRegex(et.EchoTrainError, "certificate"):
                lines_of(f"{self.url}/a.txt", remote_retries=0)
        finally:
            os.environ["SSL_CERT_FILE"] = trusted
        with self.assertRaisesRegex(et.EchoTrainError, "other.localhost.*(does not match|matches target)"):
            lines_of(f"https://other.localhost:{self.tls_port}/a.txt", remote_retries=0)

    def test_missing_files_are_named(self):
        with self.assertRaisesRegex(et.errors.NotFoundError, "nothing.txt.*404"):
            lines_of(f"{self.url}/nothing.txt")
        with self.assertRaisesRegex(et.EchoTrainError, "no listings"):
            lines_of(f"{self.url}/*.txt")

    def test_redirects_are_followed_but_not_out_of_tls(self):
        self.assertEqual(lines_of(f"http://127.0.0.1:{self.port}/moved/a.txt"), LINES)
        with self.assertRaisesRegex(et.EchoTrainError, "rotocol"):
            lines_of(f"{self.url}/open/")

    def test_connections_are_kept(self):
        (self.root / "access.log").write_text("")
        lines_of(f"http://127.0.0.1:{self.port}/a.txt", remote_connections=2, remote_part_bytes=4096)
        requests = len((self.root / "access.log").read_text().splitlines())
        self.assertGreaterEqual(requests, 40)


class Misbehaving(http.server.BaseHTTPRequestHandler):
    """Serves LINES; the path says what goes wrong."""

    protocol_version = "HTTP/1.1"
    seen, connections, paths = {}, set(), set()
    lock = threading.Lock()
    hanging, let_go = threading.Event(), threading.Event()
    waited_for = False  # a client stayed until a server that hangs gave up

    def log_message(self, *_):
        pass

    def do_GET(self):
        mode = self.path.split("/")[1]
        wanted = self.headers.get("Range", "")
        with self.lock:
            tries = self.seen[mode, wanted] = self.seen.get((mode, wanted), 0) + 1
            self.connections.add(self.client_address)
            self.paths.add(self.path)
        body = b"\n".join(LINES) + b"\n"
        total, status, etag = len(body), 200, '"v1"'
        begin = 0
        if wanted and mode not in ("no-ranges", "endless"):
            begin, end = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
            body, status = body[begin:end + 1], 206
        if mode == "hangs" and begin > 0:
            self.hanging.set()
            type(self).waited_for |= not self.let_go.wait(300)
            return
        if mode == "overloaded" and tries <= 2:
            self.send_response(503)
            self.send_header("Retry-After", "0.01")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if mode == "explains" and begin > 0 and tries == 1:  # at length
            self.send_response(503)
            self.send_header("Retry-After", "0.01")
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(bytes(100000))
            return
        if mode.startswith("endless-"):
            what = mode.removeprefix("endless-")
            self.send_response({"refusal": 404, "redirect": 302}.get(what, 200))
            self.send_header("Location", "/fine/a")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            more = b"10000\r\n" + bytes(65536) + b"\r\n"
            if what == "trailers":
                self.wfile.write(b"5\r\nline\n\r\n0\r\n")
                more = b"X: y\r\n" * 10000
            try:
                while True:
                    self.wfile.write(more)
            except OSError:
                self.close_connection = True
                return
        if mode == "changes" and begin > 0:
            etag = '"v2"'
        told = begin
        if mode == "shifts" and begin > 0:  # the length is right, the place is not
            told = begin - 16384
            body = (b"\n".join(LINES) + b"\n")[told:told + len(body)]
        self.send_response(status)
        self.send_header("ETag", etag)
        if mode == "encodes":
            self.send_header("Content-Encoding", "gzip")
        if status == 206:
            self.send_header("Content-Range", f"bytes {told}-{told + len(body) - 1}/{total}")
        if mode == "endless":  # of any length, without saying which
            self.end_headers()
            self.close_connection = True
            try:
                while True:
                    self.wfile.write(bytes(1 << 20))
            except OSError:
                return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if mode == "cuts" and tries == 1 and len(body) > 1000:
            self.wfile.write(body[:500])
            self.close_connection = True
            return
        self.wfile.write(body)


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that went away is what some tests are about


class BadServers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Quiet(("127.0.0.1", 0), Misbehaving)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.server.server_port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def setUp(self):
        Misbehaving.seen.clear()
        Misbehaving.connections.clear()
        Misbehaving.paths.clear()
        Misbehaving.hanging.clear()
        Misbehaving.let_go.clear()
        self.addCleanup(Misbehaving.let_go.set)

    def test_overloaded_servers_are_asked_again(self):
        self.assertEqual(lines_of(f"{self.url}/overloaded/a"), LINES)
        Misbehaving.seen.clear()
        with self.assertRaisesRegex(et.EchoTrainError, r"503.*tried 1 times"):
            lines_of(f"{self.url}/overloaded/a", remote_retries=0)

    def test_broken_connections_are_made_again(self):
        self.assertEqual(lines_of(f"{self.url}/cuts/a"), LINES)

    def test_compression_that_was_not_asked_for_is_refused(self):
        with self.assertRaisesRegex(et.EchoTrainError, "/encodes/a' comes with Content-Encoding 'gzip'"):
            lines_of(f"{self.url}/encodes/a")

    def test_servers_without_ranges(self):
        self.assertEqual(lines_of(f"{self.url}/no-ranges/a"), LINES)
        Misbehaving.seen.clear()
        with tempfile.TemporaryDirectory() as cache:
            self.assertEqual(lines_of(f"{self.url}/no-ranges/a", remote_cache_dir=cache), LINES)
        self.assertEqual(sum(Misbehaving.seen.values()), 1, "the whole file is sent once")

    def test_other_parts_than_those_asked_for_are_refused(self):
        with self.assertRaisesRegex(et.EchoTrainError, r"/shifts/a'.*asked for bytes 16384 to 32767 of \d+, the server sent 16384 "
                                                       r"bytes as 'bytes 0-16383/"):
            lines_of(f"{self.url}/shifts/a", remote_connections=1)

    def test_an_answer_in_one_piece_keeps_to_the_budget(self):
        with self.assertRaisesRegex(et.EchoTrainError, r"/endless/a'.*more than 8000000 bytes; the limit is budget_bytes"):
            lines_of(f"{self.url}/endless/a", budget_bytes=8_000_000)

    def test_answers_around_the_data_end(self):
        for mode, error, why in (("refusal", et.errors.NotFoundError, "404"),
                                 ("redirect", et.errors.UnsupportedError, "more than 8000000 bytes"),
                                 ("trailers", et.errors.DataIOError, "headers without an end|Too many response headers")):
            with self.assertRaisesRegex(error, f"/endless-{mode}/a'.*{why}"):
                lines_of(f"{self.url}/endless-{mode}/a", budget_bytes=8_000_000, remote_timeout_s=20, remote_retries=0)

    def test_long_refusals_are_passing_too(self):
        self.assertEqual(lines_of(f"{self.url}/explains/a"), LINES)

    def test_keys_of_objects_are_sent_as_they_are(self):
        with unittest.mock.patch.dict(os.environ, AWS_ENDPOINT_URL=self.url, AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s"):
            self.assertEqual(lines_of("s3://fine/x/../y/./z"), LINES)
        self.assertEqual(Misbehaving.paths, {"/fine/x/../y/./z"})

    def test_a_damaged_fast_shard_is_named_by_its_address(self):
        with tempfile.TemporaryDirectory() as cache:
            with self.assertRaisesRegex(et.errors.CorruptDataError, "/fine/a.ets'.* is not a fast shard"):
                digest(et.stages.fast_shard(f"{self.url}/fine/a.ets"), remote_cache_dir=cache)

    def test_files_that_change_are_an_error(self):
        with self.assertRaisesRegex(et.EchoTrainError, "was changed while it was read"):
            lines_of(f"{self.url}/changes/a")

    def test_a_server_that_hangs_is_an_error_in_time(self):
        with self.assertRaisesRegex(et.EchoTrainError, r"/hangs/a.*tried 2 times"):
            lines_of(f"{self.url}/hangs/a", remote_timeout_s=0.4, remote_retries=1)
        self.assertFalse(Misbehaving.waited_for)

    def test_cancel_ends_a_hanging_read(self):
        pipeline = et.Pipeline([et.stages.text_lines(f"{self.url}/hangs/a"), et.stages.batch(3000, drop_remainder=False)],
                               remote_part_bytes=16384)

        def cancel():
            Misbehaving.hanging.wait()
            pipeline.cancel()

        threading.Thread(target=cancel, daemon=True).start()
        with self.assertRaises(et.errors.CancelledError):
            next(iter(pipeline))
        pipeline.close()
        self.assertFalse(Misbehaving.waited_for)

    def test_connections_are_kept(self):
        self.assertEqual(lines_of(f"{self.url}/fine/a", remote_connections=3, remote_part_bytes=4096), LINES)
        self.assertGreater(len(Misbehaving.seen), 30)
        self.assertLessEqual(len(Misbehaving.connections), 4)

    def test_connections_are_not_inherited_by_child_processes(self):
        def inherited():
            found = []
            for number in os.listdir("/proc/self/fd"):
                try:
                    if os.readlink(f"/proc/self/fd/{number}").startswith("socket:") and os.get_inheritable(int(number)):
                        found.append(socket.socket(fileno=os.dup(int(number))))
                except OSError:  # closed meanwhile
                    continue
            families = [s.family for s in found]
            for s in found:
                s.close()
            return families

        found = []
        pipeline = et.Pipeline([et.stages.text_lines(f"{self.url}/hangs/a"), et.stages.batch(3000, drop_remainder=False)],
                               remote_part_bytes=16384)

        def look():
            Misbehaving.hanging.wait()
            try:
                found.extend(inherited())
            finally:
                pipeline.cancel()

        threading.Thread(target=look, daemon=True).start()
        with self.assertRaises(et.errors.CancelledError):
            next(iter(pipeline))
        pipeline.close()
        self.assertNotIn(socket.AF_INET, found)

    def test_the_cache_spares_the_network(self):
        with tempfile.TemporaryDirectory() as cache:
            self.assertEqual(lines_of(f"{self.url}/fine/a", remote_cache_dir=cache), LINES)
            Misbehaving.seen.clear()
            self.assertEqual(lines_of(f"{self.url}/fine/a", remote_cache_dir=cache), LINES)
            self.assertEqual(list(Misbehaving.seen), [("fine", "bytes=0-0")], "only the version is asked for")

    def test_the_cache_keeps_to_its_size(self):
        size = len(b"\n".join(LINES)) + 1
        with tempfile.TemporaryDirectory() as cache:
            for name in "abcd":
                lines_of(f"{self.url}/fine/{name}", remote_cache_dir=cache, remote_cache_bytes=2 * size)
                time.sleep(0.02)  # so that their times of use differ
            kept = list(pathlib.Path(cache).glob("*.shard"))
            self.assertEqual(len(kept), 2)
            Misbehaving.seen.clear()
            lines_of(f"{self.url}/fine/d", remote_cache_dir=cache, remote_cache_bytes=2 * size)
            self.assertEqual(len(Misbehaving.seen), 1, "the newest are kept")

    def test_the_cache_is_shared_by_processes(self):
        code = ("import sys; sys.path.insert(0, sys.argv[1]); import remote_test as t\n"
                "for name in 'abc': assert t.lines_of(f'{sys.argv[2]}/fine/{name}', remote_cache_dir=sys.argv[3], "
                "remote_cache_bytes=400000) == t.LINES")
        with tempfile.TemporaryDirectory() as cache:
            processes = [subprocess.Popen([sys.executable, "-c", code, os.path.dirname(__file__), self.url, cache])
                         for _ in range(4)]
            self.assertEqual([p.wait() for p in processes], [0] * 4)
            self.assertEqual(list(pathlib.Path(cache).glob("*.part*")), [])

    def test_a_read_that_was_given_up_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as cache:
            with et.Pipeline([et.stages.text_lines(f"{self.url}/fine/a")], remote_cache_dir=cache, queue_items=4,
                             remote_part_bytes=4096) as p:
                next(iter(p))
            self.assertEqual([f for f in os.listdir(cache) if "lock" not in f and not f.endswith((".shard", ".used"))], [])


class OldCurl(unittest.TestCase):
    """Stands for a libcurl before 7.85, which does not know two options and would go on without them."""

    SOURCE = """
        #include <stddef.h>
        int curl_global_init(long flags) { return 0; }
        void* curl_easy_init(void) { static int one; return &one; }
        void curl_easy_reset(void* curl) {}
        int curl_easy_setopt(void* curl, int option, ...) { return option == 10318 || option == 10319 ? 48 : 0; }
        int curl_easy_perform(void* curl) { return 3; }
        int curl_easy_getinfo(void* curl, int what, ...) { return 0; }
        void curl_easy_cleanup(void* curl) {}
        const char* curl_easy_strerror(int code) { return "it was asked"; }
        void* curl_slist_append(void* list, const char* text) { static int one; return &one; }
        void curl_slist_free_all(void* list) {}
        """

    def test_redirects_that_cannot_be_restricted_are_no_option(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cc", "-shared", "-fPIC", "-o", f"{folder}/libcurl.so.4", "-x", "c", "-"], input=self.SOURCE, text=True, check=True)
            code = "import sys; sys.path.insert(0, sys.argv[1]); import remote_test as t; t.lines_of('https://localhost/a.txt')"
            paths = os.pathsep.join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH"))))
            result = subprocess.run([sys.executable, "-c", code, os.path.dirname(os.path.abspath(__file__))], capture_output=True, text=True,
                                    env={**os.environ, "LD_LIBRARY_PATH": paths})
        self.assertRegex(result.stderr, "cannot be restricted to 'http,https': install version 7.85 or later")


class S3(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "S3_PYTHON" not in os.environ:
            raise RuntimeError("S3_PYTHON must name a Python that has moto[server,s3]; run.sh makes one")
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="echotrain-s3-"))
        cls.process = subprocess.Popen([os.environ["S3_PYTHON"], pathlib.Path(__file__).with_name("s3_server.py"), content.files],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        server = cls.server = json.loads(cls.process.stdout.readline())
        cls.before = {k: os.environ.pop(k) for k in list(os.environ) if k.startswith("AWS_")}
        os.environ["HOME"], cls.home = str(cls.root), os.environ.get("HOME", "")
        os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{server['port']}", AWS_ACCESS_KEY_ID=server["access_key"],
                          AWS_SECRET_ACCESS_KEY=server["secret_key"], AWS_REGION="us-east-1")

    @classmethod
    def tearDownClass(cls):
        cls.process.communicate("")
        for key in [k for k in os.environ if k.startswith("AWS_")]:
            os.environ.pop(key)
        os.environ.update(cls.before)
        os.environ["HOME"] = cls.home
        shutil.rmtree(cls.root)

    def test_signed_requests_are_accepted(self):
        self.assertEqual(lines_of("s3://bucket/a.txt"), LINES)
        self.assertEqual(lines_of("s3://bucket/with space+plus ü.txt"), LINES)

    def test_globs_list_the_bucket(self):
        local = digest(et.stages.webdataset(str(content.files / "train-*.tar.zst")))
        self.assertEqual(digest(et.stages.webdataset("s3://bucket/train-*.tar.zst")), local)
        with self.assertRaisesRegex(et.errors.NotFoundError, "no object matches"):
            lines_of("s3://bucket/nothing-*")

    def test_wrong_keys_are_refused(self):
        os.environ["AWS_SECRET_ACCESS_KEY"] = "wrong"
        try:
            with self.assertRaisesRegex(et.EchoTrainError, "access denied.*SignatureDoesNotMatch"):
                lines_of("s3://bucket/a.txt")
        finally:
            os.environ["AWS_SECRET_ACCESS_KEY"] = self.server["secret_key"]

    def test_profiles_are_found(self):
        keys = {k: os.environ.pop(k) for k in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        (self.root / ".aws").mkdir()
        (self.root / ".aws/credentials").write_text(
            "[default]\naws_access_key_id = nobody\naws_secret_access_key = x\n"
            f"[work]\naws_access_key_id = {self.server['access_key']}\naws_secret_access_key = {self.server['secret_key']}\n")
        os.environ["AWS_PROFILE"] = "work"
        try:
            self.assertEqual(lines_of("s3://bucket/a.txt"), LINES)
            os.environ["AWS_PROFILE"] = "default"
            with self.assertRaisesRegex(et.EchoTrainError, "access denied"):
                lines_of("s3://bucket/a.txt")
        finally:
            os.environ.pop("AWS_PROFILE")
            os.environ.update(keys)

    def test_missing_objects_are_named(self):
        with self.assertRaisesRegex(et.errors.NotFoundError, "s3://bucket/no.txt"):
            lines_of("s3://bucket/no.txt")


if __name__ == "__main__":
    unittest.main(verbosity=2)
