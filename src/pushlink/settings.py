"""Settings: one TOML file and `PUSHLINK_*` variables, checked before anything is opened.

`pushlink.toml` is looked for in the working directory, or where `PUSHLINK_CONFIG` points; a variable wins over the file
(`PUSHLINK_DATABASE_URL`, `PUSHLINK_WORKER__LEASE=2m`). Secrets are never in the file: it names a file or a variable.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pushlink.adapters.objects import ObjectDeclaration
from pushlink.errors import ConfigurationError
from pushlink.protocol.contracts import DurationMs
from pushlink.protocol.identity import SECRET_BYTES_MIN

CONFIG_VARIABLE: Final = "PUSHLINK_CONFIG"
CONFIG_NAME: Final = "pushlink.toml"
SECRET_VARIABLE: Final = "PUSHLINK_SECRET"  # noqa: S105 - the name of a variable


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class WorkerSettings(_Part):
    """How a worker claims and sends. A lease must hold a request's whole deadline and the margin (D-12)."""

    lease_ms: Annotated[DurationMs, Field(alias="lease")] = 90_000
    margin_ms: Annotated[DurationMs, Field(alias="margin")] = 5_000
    grace_ms: Annotated[DurationMs, Field(alias="grace")] = 25_000
    poll_ms: Annotated[DurationMs, Field(alias="poll")] = 1_000
    sends_max: Annotated[int, Field(ge=1, le=4_096)] = 128
    threads: Annotated[int, Field(ge=1, le=8)] = 3
    claims_max: Annotated[int, Field(ge=1, le=1_000)] = 5
    mirror_tries_max: Annotated[int, Field(ge=1, le=1_000)] = 12


class EgressSettings(_Part):
    """Which addresses a transport may reach beyond public ones; both are off unless they are written."""

    allow_loopback: bool = False
    allow_private: bool = False
    ca_file: Path | None = None


class OperatorSettings(_Part):
    """What is asked of operators. `pause_max` is the longest that a worker's machine may stand still (D-08)."""

    second_principal: bool = False
    pause_max_ms: Annotated[DurationMs, Field(alias="pause_max")] = 600_000


class ContractSettings(_Part):
    """Which replay contracts count: certified ones for `valid_for`, and others only where this says so."""

    trust_uncertified: bool = False
    valid_for_ms: Annotated[DurationMs, Field(alias="valid_for")] = 90 * 86_400_000


class AtRestSettings(_Part):
    """What becomes of the contents of records that rows keep: sealed with which key, and erased when (S8).

    `keys` are references (`env:NAME`, `file:/path`) by id. All of them open; `seal_with` seals.
    """

    keys: dict[str, str] = {}
    seal_with: str | None = None
    require_sealed: bool = False
    erase_after_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    prune_after_days: Annotated[int, Field(ge=1, le=36_500)] | None = None

    @model_validator(mode="after")
    def _one_key_seals(self) -> AtRestSettings:
        if (self.seal_with is None) != (not self.keys) or (self.seal_with or "") not in {"", *self.keys}:
            msg = "name the one of keys that seals: seal_with"
            raise ValueError(msg)
        if self.require_sealed and not self.keys:
            msg = "require_sealed needs keys"
            raise ValueError(msg)
        return self


class AuditSettings(_Part):
    """Which keys sign and check anchors of the audit (S13).

    `keys` are references by id: `env:NAME` and `file:/path` sign and check, `public:BASE64` only checks. Where any is
    named, an anchor that none of them signed is not believed.
    """

    keys: dict[str, str] = {}
    sign_with: str | None = None

    @model_validator(mode="after")
    def _one_key_signs(self) -> AuditSettings:
        if self.sign_with is not None and self.sign_with not in self.keys:
            msg = "sign_with is one of keys"
            raise ValueError(msg)
        return self


class AuthoritySettings(_Part):
    """Who answers what a user may read: a policy file, or `allow_all` for an install with a single user."""

    kind: Literal["policy", "allow_all"] = "policy"
    file: Path | None = None

    @model_validator(mode="after")
    def _policy_has_a_file(self) -> AuthoritySettings:
        if self.kind == "policy" and self.file is None:
            msg = 'name the policy file, or write kind = "allow_all" to let every user read every record'
            raise ValueError(msg)
        return self


class _TomlSource(PydanticBaseSettingsSource):
    """The TOML file as a settings source behind the environment."""

    def __init__(self, kind: type[BaseSettings], content: Mapping[str, Any]) -> None:
        super().__init__(kind)
        self._content = content

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 - the library's signature
        """One value of the file."""
        return self._content.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """The whole file."""
        return dict(self._content)


class Settings(BaseSettings):
    """Everything a deployment declares outside of its database."""

    model_config = SettingsConfigDict(
        env_prefix="PUSHLINK_", env_nested_delimiter="__", extra="forbid", frozen=True, populate_by_name=True
    )

    # An address may hold a password, so no `repr` shows one.
    database_url: Annotated[str, Field(repr=False)]
    # Where the records are, if not in the database of pushlink's tables (D-45).
    records_database_url: Annotated[str | None, Field(repr=False)] = None
    secret_file: Path | None = None
    authority: AuthoritySettings
    objects: dict[str, ObjectDeclaration] = {}
    worker: WorkerSettings = WorkerSettings()
    egress: EgressSettings = EgressSettings()
    operators: OperatorSettings = OperatorSettings()
    contracts: ContractSettings = ContractSettings()
    at_rest: AtRestSettings = AtRestSettings()
    audit: AuditSettings = AuditSettings()
    deployment_id: str | None = None  # of the database that these settings belong to (D-36)
    state_directory: Path | None = None
    token_directory: Path | None = None  # where OAuth tokens are kept; never in the database
    base_directory: Path = Path()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the file that `load` read."""
        content = init_settings.init_kwargs.pop("_file", {})  # type: ignore[attr-defined]
        return init_settings, env_settings, _TomlSource(settings_cls, content)

    @model_validator(mode="before")
    @classmethod
    def _objects_know_their_names(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(objects := data.get("objects"), dict):
            named = {
                name: {"name": name, **declared} if isinstance(declared, dict) else declared
                for name, declared in objects.items()
            }
            return {**data, "objects": named}
        return data

    @model_validator(mode="after")
    def _two_databases_are_two(self) -> Settings:
        if self.records_database_url == self.database_url:
            msg = "leave records_database_url out: the records are in the database of pushlink's tables"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _a_lease_holds_its_margin(self) -> Settings:
        if self.worker.lease_ms <= self.worker.margin_ms:
            msg = "worker.lease must be longer than worker.margin: no request would fit into it"
            raise ValueError(msg)
        return self

    @classmethod
    def load(cls, path: str | Path | None = None, **overrides: Any) -> Settings:
        """Read the file (if there is one) and the environment; raises `ConfigurationError` naming every mistake."""
        named = path or os.environ.get(CONFIG_VARIABLE)
        file = Path(named) if named else Path(CONFIG_NAME)
        content: dict[str, Any] = {}
        if file.is_file():
            try:
                content = tomllib.loads(file.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
                raise ConfigurationError(
                    f"{file} is no TOML file: {exc}", evidence={"file": str(file)}, next_step=f"correct {file}"
                ) from exc
        elif named:
            raise ConfigurationError(
                f"There is no settings file {file}.", evidence={"file": str(file)}, next_step="pushlink init"
            )
        content.setdefault("base_directory", str(file.resolve().parent))
        try:
            return cls(**{"_file": content, **overrides})
        except ValidationError as exc:
            lines = [f"{'.'.join(str(part) for part in e['loc']) or '(settings)'}: {e['msg']}" for e in exc.errors()]
            raise ConfigurationError(
                f"The settings of {file if file.is_file() else 'the environment'} do not hold: " + "; ".join(lines),
                evidence={"file": str(file), "mistakes": lines},
                next_step=f"correct {file}" if file.is_file() else "pushlink init",
            ) from exc

    def resolve(self, path: Path) -> Path:
        """A path of the file, relative to the file's own directory."""
        return path if path.is_absolute() else self.base_directory / path

    def secret(self) -> bytes:
        """The deployment's secret: `PUSHLINK_SECRET`, or the content of `secret_file`."""
        if value := os.environ.get(SECRET_VARIABLE):
            secret = value.encode()
        elif self.secret_file is not None:
            try:
                secret = self.resolve(self.secret_file).read_bytes().strip()
            except OSError as exc:
                raise ConfigurationError(
                    f"The secret file {self.secret_file} cannot be read.",
                    evidence={"file": str(self.secret_file)},
                    next_step="pushlink init",
                ) from exc
        else:
            raise ConfigurationError(
                f"There is no deployment secret: set secret_file in the settings, or {SECRET_VARIABLE}.",
                next_step="pushlink init",
            )
        if len(secret) < SECRET_BYTES_MIN:
            raise ConfigurationError(
                f"The deployment secret has fewer than {SECRET_BYTES_MIN} bytes.", next_step="pushlink init"
            )
        return secret
