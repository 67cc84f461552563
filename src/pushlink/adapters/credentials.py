"""Credentials from the environment and from files: references in, secrets out, nothing kept in text.

A reference is `env:NAME` or `file:/absolute/path`. It may hold `{tenant}`: then a tenant is required, and each has its
own place. Without the placeholder a tenant's own secret is looked for first, under `NAME__tenant` or `path.tenant`
(spelled exactly as the tenant is), and the plain one is what all tenants without their own share; a pack that must
not share writes the placeholder. A tenant whose name no variable can hold has files only.

A generation is a keyed hash of the secret: it tells that a secret changed, and nothing else (D-34, D-40).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pushlink.errors import Code, ConfigurationError
from pushlink.ports import Secret

#: A secret is a token, not a document.
SECRET_BYTES_MAX: Final = 8_192

#: How many secrets are remembered with their generation; a deployment with more computes some of them again.
SECRETS_KEPT_MAX: Final = 1_024

#: Length of a generation in hexadecimal digits: 96 bits tell any two secrets apart and are too few to search from.
GENERATION_DIGITS: Final = 24

_PLACEHOLDER: Final = "{tenant}"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# What a tenant may be called where its name becomes part of a variable, or of a path (no separator, no leading dot).
_ENV_PART = re.compile(r"[A-Za-z0-9_]{1,128}", re.ASCII)
_TENANT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A secret as it was read, with what would show that the file has changed."""

    signature: tuple[int, ...]
    secret: Secret


class EnvironmentFileCredentials:
    """The built-in provider. `key` is the deployment's secret; without it a generation could be searched for.

    A file that everybody on the machine can read is refused, unless `allow_world_readable` is set.
    """

    def __init__(
        self, key: bytes, *, environment: Mapping[str, str] | None = None, allow_world_readable: bool = False
    ) -> None:
        if not key:
            msg = "credentials need a deployment secret to key their generations"
            raise ConfigurationError(msg)
        self._key = key
        self._environment = os.environ if environment is None else environment
        self._allow_world_readable = allow_world_readable
        self._kept: dict[Path, _Kept] = {}
        self._secrets: dict[str, Secret] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def generation(self, reference: str, *, tenant: str) -> str:
        """The generation of a credential; raises `ConfigurationError` when there is none."""
        return self.resolve(reference, tenant=tenant).generation

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        """The secret of a reference for a tenant; raises `ConfigurationError`, which names the reference only."""
        kind, _, place = reference.partition(":")
        match kind:
            case "env":
                return self._from_environment(reference, place, tenant)
            case "file":
                return self._from_file(reference, place, tenant)
        raise _unavailable(reference, tenant, "is neither env:NAME nor file:/path")

    def _from_environment(self, reference: str, name: str, tenant: str) -> Secret:
        # Nothing is folded or replaced: two tenants must never come to share a variable by the way it is spelled.
        writable = tenant if _ENV_PART.fullmatch(tenant) else ""
        for candidate in _places(reference, name, "__", writable, tenant):
            if not _ENV_NAME.fullmatch(candidate):
                raise _unavailable(reference, tenant, "names no environment variable")
            value = self._environment.get(candidate)
            if value == "":
                raise _unavailable(reference, tenant, "is set to nothing")
            if value is not None:
                return self._secret(value)
        raise _unavailable(reference, tenant, "is not set")

    def _from_file(self, reference: str, place: str, tenant: str) -> Secret:
        if tenant and not _TENANT.fullmatch(tenant):
            raise _unavailable(reference, tenant, "cannot be looked up for a tenant of that name")
        for candidate in _places(reference, place, ".", tenant, tenant):
            path = Path(candidate)
            if not path.is_absolute() or ".." in path.parts:
                raise _unavailable(reference, tenant, "is no absolute path")
            if (secret := self._read(reference, path, tenant)) is not None:
                return secret
        raise _unavailable(reference, tenant, "is not there")

    def _read(self, reference: str, path: Path, tenant: str) -> Secret | None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _unavailable(reference, tenant, "cannot be read") from exc
        signature = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        with self._lock:
            kept = self._kept.get(path)
        if kept is not None and kept.signature == signature:
            return kept.secret
        if not stat.S_ISREG(status.st_mode) or status.st_size > SECRET_BYTES_MAX:
            raise _unavailable(reference, tenant, f"is no file of at most {SECRET_BYTES_MAX} bytes")
        if status.st_mode & stat.S_IROTH and not self._allow_world_readable:
            raise _unavailable(reference, tenant, "can be read by everybody on this machine; chmod 640 or stricter")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise _unavailable(reference, tenant, "cannot be read as text") from None
        # Editors and `echo` end a file with one line break, which is never part of a secret.
        value = text.removesuffix("\n").removesuffix("\r")
        if not value:
            raise _unavailable(reference, tenant, "is empty")
        secret = self._secret(value)
        with self._lock:
            self._kept[path] = _Kept(signature, secret)
        return secret

    def _secret(self, value: str) -> Secret:
        if (known := self._secrets.get(value)) is not None:
            return known
        digest = hmac.new(self._key, b"pushlink credential generation\x00" + value.encode(), hashlib.sha256)
        if len(self._secrets) >= SECRETS_KEPT_MAX:
            self._secrets.clear()
        secret = self._secrets[value] = Secret(value=value, generation=digest.hexdigest()[:GENERATION_DIGITS])
        return secret


def _places(reference: str, place: str, joint: str, part: str, tenant: str) -> list[str]:
    """Where to look, in order; `part` is the tenant as it can be written there, or empty."""
    if _PLACEHOLDER not in place:
        return [f"{place}{joint}{part}", place] if part else [place]
    if not part:
        raise _unavailable(reference, tenant, "has a place for a tenant whose name can be written there")
    return [place.replace(_PLACEHOLDER, part)]


def _unavailable(reference: str, tenant: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The credential {reference} {why}.",
        code=Code.CREDENTIAL_UNAVAILABLE,
        evidence={"reference": reference, "tenant": tenant},
        next_step="set the variable or write the file, then try again",
    )
