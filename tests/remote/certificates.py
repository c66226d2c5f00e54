"""Certificates for servers on the loopback, by the command openssl."""

import subprocess

NAMES = "[req]\ndistinguished_name = names\n[names]\n[ca]\ndefault_ca = one\n"
PAST, PRESENT, FUTURE, FAR = "20200101000000Z", "20210101000000Z", "20980101000000Z", "20990101000000Z"


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def self_signed(folder, name, host="localhost"):
    """The paths of a certificate that nobody has signed, and of its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}",
            "-keyout", key, "-out", certificate)
    return certificate, key


class Authority:
    """Signs certificates; `certificate` is its own."""

    def __init__(self, folder):
        self.folder, self.certificate, self.key = folder, folder / "authority.pem", folder / "authority.key"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=EchoTrain's tests", "-keyout", self.key,
                "-out", self.certificate)
        (folder / "authority.index").write_text("")
        self.settings = folder / "authority.cnf"
        self.settings.write_text(f"{NAMES}[one]\ndatabase = {folder}/authority.index\nnew_certs_dir = {folder}\nrand_serial = yes\n"
                                 "default_md = sha256\nunique_subject = no\ncopy_extensions = copy\npolicy = any\n"
                                 "[any]\ncommonName = supplied\n")

    def sign(self, name, host="localhost", begin=PRESENT, end=FAR):
        """The paths of a certificate for a host and of its key."""
        certificate, key, request = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-keyout", key,
                "-out", request)
        openssl("ca", "-batch", "-notext", "-config", self.settings, "-cert", self.certificate, "-keyfile", self.key, "-startdate", begin,
                "-enddate", end, "-in", request, "-out", certificate)
        return certificate, key
