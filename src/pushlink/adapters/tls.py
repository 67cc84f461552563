"""TLS of outgoing connections: always verified, from 1.2 on, with a certificate of our own where a profile has one.

A client certificate is a secret like any other: PEM text, key and chain in one, from the credential provider. The
library of TLS reads files only, so the text passes through memory that has a name for a moment (through a file of our
own user where the system has no such memory), and stays in the context that was made of it.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pushlink.adapters.wire import RequestRefused
from pushlink.errors import ConfigurationError

#: Contexts that are kept; a deployment has one for each profile and tenant with a certificate of its own.
CONTEXTS_MAX: Final = 256


class TlsContexts:
    """The contexts of one transport. `ca_file` replaces the system's certificate authorities."""

    def __init__(self, ca_file: str | Path | None) -> None:
        self._ca_file = ca_file
        self.plain = self._context()
        self._kept: OrderedDict[bytes, ssl.SSLContext] = OrderedDict()

    def presenting(self, secret: str, reference: str) -> ssl.SSLContext:
        """A context that shows the certificate in a secret; raises `RequestRefused`, which names the reference only."""
        key = hashlib.sha256(secret.encode()).digest()
        context = self._kept.get(key)
        if context is None:
            context = self._context()
            try:
                with _named(secret) as path:
                    context.load_cert_chain(path, password=_no_password)
            except (OSError, ValueError):
                msg = f"the credential {reference} is no certificate with its key in PEM, without a password"
                raise RequestRefused(msg) from None
            self._kept[key] = context
            while len(self._kept) > CONTEXTS_MAX:
                self._kept.popitem(last=False)
        return context

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
        except (OSError, ssl.SSLError) as exc:
            msg = f"the certificate authorities of {self._ca_file} cannot be read"
            raise ConfigurationError(msg) from exc
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        return context


def _no_password() -> str:
    """What is said where a key asks for a password: without it the library would ask at the terminal."""
    msg = "the key has a password"
    raise ValueError(msg)


@contextmanager
def _named(secret: str) -> Iterator[str]:
    """A path under which the secret can be read while this lasts, by this process alone."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
    else:  # pragma: no cover - systems without memory that has a name
        descriptor, path = tempfile.mkstemp()
    try:
        os.write(descriptor, secret.encode())
        yield path
    finally:
        os.close(descriptor)
        if not hasattr(os, "memfd_create"):  # pragma: no cover
            Path(path).unlink()
