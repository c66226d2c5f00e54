"""Serves the files of a folder over HTTPS, and as the objects of an S3 store, until its input ends.

    data_server.py FOLDER HOST

Writes the certificate of its authority to FOLDER/tls, and prints its port, once it listens.
"""

import pathlib
import sys

from certificates import Authority
from faulty_server import Server, listing


def main():
    folder, host = pathlib.Path(sys.argv[1]), sys.argv[2]
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    tls = folder / "tls"
    tls.mkdir()
    server = Server(files, Authority(tls).sign("server", host))
    server.listing = lambda path: listing(files)
    print(server.port, flush=True)
    sys.stdin.read()


main()
