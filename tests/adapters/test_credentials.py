from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlink.adapters.credentials import EnvironmentFileCredentials
from pushlink.errors import Code, ConfigurationError

KEY = b"deployment secret of a test"


def provider(environment: dict[str, str] | None = None, **options: bool) -> EnvironmentFileCredentials:
    return EnvironmentFileCredentials(KEY, environment=environment or {}, **options)


def secret_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def refusal(credentials: EnvironmentFileCredentials, reference: str, tenant: str = "") -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        credentials.resolve(reference, tenant=tenant)
    assert refused.value.code is Code.CREDENTIAL_UNAVAILABLE
    assert reference in str(refused.value)
    return refused.value


def test_a_variable_holds_a_secret() -> None:
    """`env:NAME` is the variable as it is."""
    assert provider({"TOKEN": " s3cret "}).resolve("env:TOKEN", tenant="").value == " s3cret "


@pytest.mark.parametrize(("text", "value"), [("s3cret", "s3cret"), ("s3cret\n", "s3cret"), ("s3cret\r\n", "s3cret")])
def test_a_file_holds_a_secret_and_perhaps_a_line_break(text: str, value: str, tmp_path: Path) -> None:
    """One line break at the end is an editor's, not the secret's."""
    path = tmp_path / "token"
    path.write_bytes(text.encode())
    path.chmod(0o600)
    assert provider().resolve(f"file:{path}", tenant="").value == value


def test_only_one_line_break_is_taken_away(tmp_path: Path) -> None:
    """What stands before it belongs to the secret."""
    path = secret_file(tmp_path / "token", "s3cret\n\n")
    assert provider().resolve(f"file:{path}", tenant="").value == "s3cret\n"


@pytest.mark.parametrize(
    "reference",
    [
        *("env:MISSING", "env:", "env:A-B", "env:1A", "env:A B", "TOKEN", "", "vault:x", "env", "file:", "file:token"),
        *("file:../token", "file:/nowhere/token", "file:/etc/../etc/hostname", "ENV:TOKEN", "env:EMPTY"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(reference: str) -> None:
    """The error names the reference, and has a stable code."""
    refusal(provider({"TOKEN": "s3cret", "EMPTY": ""}), reference)


def test_a_file_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    """Unless the deployment says that this is how its secrets are mounted."""
    path = secret_file(tmp_path / "token", "s3cret", 0o644)
    assert "chmod" in str(refusal(provider(), f"file:{path}"))
    assert provider(allow_world_readable=True).resolve(f"file:{path}", tenant="").value == "s3cret"


def test_what_is_no_small_file_is_refused(tmp_path: Path) -> None:
    """Folders, devices, documents, empty files and binary files hold no secret."""
    refusal(provider(), f"file:{tmp_path}")
    refusal(provider(allow_world_readable=True), "file:/dev/zero")
    refusal(provider(), f"file:{secret_file(tmp_path / 'long', 'x' * 10_000)}")
    refusal(provider(), f"file:{secret_file(tmp_path / 'empty', '')}")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    binary.chmod(0o600)
    refusal(provider(), f"file:{binary}")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Also when it is replaced by another of the same size, as mounted secrets are."""
    path = secret_file(tmp_path / "token", "first1")
    credentials = provider()
    first = credentials.resolve(f"file:{path}", tenant="")
    assert credentials.resolve(f"file:{path}", tenant="") is first
    secret_file(tmp_path / "next", "second").replace(path)
    second = credentials.resolve(f"file:{path}", tenant="")
    assert (first.value, second.value) == ("first1", "second")
    assert first.generation != second.generation
    path.unlink()
    refusal(credentials, f"file:{path}")


@pytest.mark.rule("D-40")
def test_a_tenant_has_its_own_secret_before_the_shared_one(tmp_path: Path) -> None:
    """`NAME__tenant` and `path.tenant` first, then the plain reference; never the secret of another tenant."""
    path = secret_file(tmp_path / "token", "shared file")
    secret_file(tmp_path / "token.north", "file of north")
    credentials = provider({"TOKEN": "shared", "TOKEN__north": "of north"})
    found = {
        (reference, tenant): credentials.resolve(reference, tenant=tenant).value
        for reference in ("env:TOKEN", f"file:{path}")
        for tenant in ("north", "south", "")
    }
    assert found == {
        ("env:TOKEN", "north"): "of north",
        ("env:TOKEN", "south"): "shared",
        ("env:TOKEN", ""): "shared",
        (f"file:{path}", "north"): "file of north",
        (f"file:{path}", "south"): "shared file",
        (f"file:{path}", ""): "shared file",
    }


@pytest.mark.rule("D-40")
def test_a_reference_with_a_place_for_the_tenant_is_never_shared(tmp_path: Path) -> None:
    """With the placeholder there is one place for each tenant and no other."""
    secret_file(tmp_path / "north", "file of north")
    credentials = provider({"TOKEN_north": "of north", "TOKEN_": "of nobody", "TOKEN": "shared"})
    place = f"file:{tmp_path}/{{tenant}}"
    assert credentials.resolve("env:TOKEN_{tenant}", tenant="north").value == "of north"
    assert credentials.resolve(place, tenant="north").value == "file of north"
    for tenant in ("south", ""):
        refusal(credentials, "env:TOKEN_{tenant}", tenant)
        refusal(credentials, place, tenant)


@pytest.mark.rule("D-40")
def test_an_empty_secret_of_a_tenant_does_not_fall_back(tmp_path: Path) -> None:
    """Somebody took this tenant's secret away; the shared one is not meant for it."""
    path = secret_file(tmp_path / "token", "shared file")
    secret_file(tmp_path / "token.north", "")
    refusal(provider({"TOKEN": "shared", "TOKEN__north": ""}), "env:TOKEN", "north")
    refusal(provider(), f"file:{path}", "north")


@pytest.mark.rule("D-40")
@pytest.mark.parametrize("tenant", ["..", "../other", "a/b", ".hidden", "a\x00", "a\nb", "\u00e9", "x" * 200])
def test_a_tenants_name_leads_to_no_other_place(tenant: str, tmp_path: Path) -> None:
    """A name that could climb or split is not looked up."""
    inside = tmp_path / "tenants"
    inside.mkdir()
    secret_file(tmp_path / "other", "not yours")
    refusal(provider(), f"file:{inside}/{{tenant}}", tenant)
    refusal(provider({"TOKEN_": "x"}), "env:TOKEN_{tenant}", tenant)


@pytest.mark.rule("D-40")
@given(st.lists(st.text("abAB_-.9", min_size=1, max_size=4), min_size=2, max_size=2, unique=True))
def test_no_two_tenants_share_a_place(tenants: list[str]) -> None:
    """Whatever two tenants are called, a secret that is placed for the one is not found for the other."""
    one, other = tenants
    credentials = provider({f"TOKEN_{one}": "of one"})
    with pytest.raises(ConfigurationError):
        credentials.resolve("env:TOKEN_{tenant}", tenant=other)


def test_a_generation_tells_of_change_and_of_nothing_else() -> None:
    """The same secret has one generation wherever it stands; the key of the deployment keeps it from being guessed."""
    credentials = provider({"A": "s3cret", "B": "s3cret", "C": "other"})
    generations = [credentials.generation(f"env:{name}", tenant="") for name in "ABC"]
    assert generations[0] == generations[1] != generations[2]
    elsewhere = EnvironmentFileCredentials(b"another deployment", environment={"A": "s3cret"})
    assert elsewhere.generation("env:A", tenant="") != generations[0]
    assert all(len(generation) == 24 for generation in generations)
    with pytest.raises(ConfigurationError):
        EnvironmentFileCredentials(b"")


def test_no_text_of_the_provider_shows_a_secret(tmp_path: Path) -> None:
    """Neither `repr`, nor an error, nor the evidence of one."""
    path = secret_file(tmp_path / "token", "canary-in-a-file")
    credentials = provider({"TOKEN": "canary-in-a-variable"})
    secrets = [credentials.resolve(reference, tenant="") for reference in ("env:TOKEN", f"file:{path}")]
    path.chmod(0o644)
    error = refusal(credentials, f"file:{path}")
    shown = f"{credentials!r} {secrets!r} {error!r} {error} {error.evidence} {vars(error)}"
    assert "canary" not in shown


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read when it is asked, so that a test or a supervisor may change it."""
    credentials = EnvironmentFileCredentials(KEY)
    monkeypatch.setitem(os.environ, "PUSHLINK_TEST_TOKEN", "s3cret")
    assert credentials.resolve("env:PUSHLINK_TEST_TOKEN", tenant="").value == "s3cret"
