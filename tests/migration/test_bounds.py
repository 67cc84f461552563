"""What a mapping manifest can reach, and who can reach receipts: read from the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp
import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
HERE = ("protocol/manifest.py", "protocol/receipts.py", "store/revalidation.py", "migration/revalidate.py")

#: The rooms that the entry points import, directly or not; the contract of pyproject.toml says what they may not.
ALLOWED = re.compile(
    r"pushlink\.(?:errors|migration\.(?:batches|running)|packs\.model|protocol(?:\.\w+)?"
    r"|store\.(?:access|active|\w+_tables|audit|catalog|chains|columns|dialect(?:\.\w+)?|registry"
    r"|revalidation|revision|rows|tables))"
)


def text_of(name: str) -> str:
    return (SRC / "pushlink" / name).read_text(encoding="utf-8")


@pytest.mark.rule("RV-10")
def test_the_entry_points_import_nothing_that_could_call_out_or_change_an_attempt() -> None:
    """Every module of ours behind `migration.revalidate` is one of a short list."""
    graph = grimp.build_graph("pushlink", cache_dir=None)
    behind = graph.find_upstream_modules("pushlink.migration.revalidate")
    assert "pushlink.store.revalidation" in behind
    assert not sorted(name for name in behind if not ALLOWED.fullmatch(name))


@pytest.mark.rule("RV-10", "RV-08")
def test_its_statements_write_links_receipts_and_the_catalogue_revision_alone() -> None:
    """One update of links, one insert of receipts, one update of the deployment's row."""
    written: list[str] = []
    for node in ast.walk(ast.parse(text_of("store/revalidation.py"))):
        match node:
            case ast.Call(func=ast.Attribute(attr="update" | "insert" | "delete" as verb, value=of), args=args):
                written.append(f"{verb} {ast.unparse(args[0] if args else of)}")
    assert sorted(written) == ["insert revalidation_receipt", "update deployment", "update t"]
    assert "t, m = remote_link, rows.c" in text_of("store/revalidation.py")


@pytest.mark.rule("RV-10", "RV-12")
@pytest.mark.parametrize("name", HERE)
def test_no_part_of_it_knows_a_port_or_a_heuristic(name: str) -> None:
    """No record store, credential, transport or authority is named; nor is anything compared but keys and digests."""
    words = {node.id for node in ast.walk(ast.parse(text_of(name))) if isinstance(node, ast.Name)}
    assert words.isdisjoint({"RecordStore", "Transport", "Credentials", "Authority", "World", "lifecycle"})
    assert not re.search(r"\b(?:like|ilike|lower|similar)\(", text_of(name))


@pytest.mark.rule("RV-11", "RV-01")
def test_nothing_else_of_the_source_reads_receipts() -> None:
    """The table is named where tables are defined, manifests applied and people shown them; no flow imports these."""
    naming = {
        path.relative_to(SRC / "pushlink").as_posix()
        for path in (SRC / "pushlink").rglob("*.py")
        if "revalidation_receipt" in path.read_text(encoding="utf-8")
    }
    assert {name for name in naming if "migrations/" not in name} <= {
        "store/tables.py",
        "store/revalidation.py",
        "store/chains.py",
        "store/history.py",
        "protocol/receipts.py",
    }
    importing = {
        path.relative_to(SRC / "pushlink").as_posix()
        for path in (SRC / "pushlink").rglob("*.py")
        if re.search(r"protocol\.(?:receipts|manifest)\b|store\.revalidation\b|import revalidation\b", path.read_text())
    }
    assert not {name for name in importing if name.startswith(("flows/", "adapters/", "worker", "orm", "operations/"))}
    verifying = {
        path.relative_to(SRC / "pushlink").as_posix()
        for path in (SRC / "pushlink").rglob("*.py")
        if re.search(r"store\.chains\b|import .*\bchains\b", path.read_text())
    }
    assert verifying == {
        "operations/verifying.py",
        *(f"migration/{name}.py" for name in ("adopt_apply", "adopt_rollback", "rebind", "revalidate")),
    }


@pytest.mark.rule("RV-01")
def test_there_is_no_second_snapshot() -> None:
    """No column of a link is an effective, current or overriding fingerprint beside the two."""
    from pushlink.store.tables import METADATA

    names = {column.name for column in METADATA.tables["pushlink_remote_link"].columns}
    assert {name for name in names if "fingerprint" in name} == {"mapping_fingerprint", "body_fingerprint"}
    assert not {name for name in names if "effective" in name}
