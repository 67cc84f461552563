"""Certificates for tests, made when they are needed: an authority, a good server, and servers that must be refused."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)
_USAGE_NAMES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """An authority to trust, the server contexts that go with it, and a client's certificate with its key (PEM)."""

    ca_file: Path
    good: ssl.SSLContext
    wrong_host: ssl.SSLContext
    expired: ssl.SSLContext
    unknown_authority: ssl.SSLContext
    asks_for_client: ssl.SSLContext
    client: str


def make_certificates(directory: Path) -> Certificates:
    """Write fresh keys and certificates for loopback into a directory."""
    now = dt.datetime.now(dt.UTC)
    authority = _Authority(now)
    stranger = _Authority(now)
    ca_file = directory / "ca.pem"
    ca_file.write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
    loopback = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost"))
    elsewhere = (x509.DNSName("elsewhere.test"),)

    def server(name: str, issuer: _Authority, names: tuple[x509.GeneralName, ...], end: dt.datetime) -> ssl.SSLContext:
        return issuer.server(directory / f"{name}.pem", names, end)

    asks_for_client = server("asks-for-client", authority, loopback, now + _DAY)
    asks_for_client.verify_mode = ssl.CERT_REQUIRED
    asks_for_client.load_verify_locations(ca_file)
    return Certificates(
        ca_file=ca_file,
        good=server("good", authority, loopback, now + _DAY),
        wrong_host=server("wrong-host", authority, elsewhere, now + _DAY),
        expired=server("expired", authority, loopback, now - _DAY),
        unknown_authority=server("unknown", stranger, loopback, now + _DAY),
        asks_for_client=asks_for_client,
        client=authority.pair("pushlink test client", (x509.DNSName("client.test"),), now + _DAY).decode("ascii"),
    )


class _Authority:
    """Signs certificates for an hour of testing."""

    def __init__(self, now: dt.datetime) -> None:
        self.start = now - 3 * _DAY
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pushlink test authority")])
        self.certificate = (
            self._builder(self.name, self.key, now + _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    def server(self, path: Path, names: tuple[x509.GeneralName, ...], end: dt.datetime) -> ssl.SSLContext:
        """A server context with a certificate for some names, valid until `end`."""
        path.touch(mode=0o600)
        path.write_bytes(self.pair("pushlink test server", names, end))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def pair(self, name: str, names: tuple[x509.GeneralName, ...], end: dt.datetime) -> bytes:
        """A key and its certificate for some names, valid until `end`, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(subject, key, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private + certificate.public_bytes(serialization.Encoding.PEM)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, end: dt.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.start)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in allowed for name in _USAGE_NAMES})
