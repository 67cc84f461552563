from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent

import pytest
import sqlalchemy as sa

from pushlink.adapters.objects import ObjectDeclaration
from pushlink.adapters.policy import AllowAllAuthority, CallableAuthority, HostAnswer, PolicyAuthority
from pushlink.adapters.policy_document import check_names, read_policy, read_policy_text
from pushlink.adapters.records import SqlRecordStore
from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.ports import AuthorityDecision, AuthorityRequest, RecordRef

EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
FIELDS = ("name", "email", "salary")

# Row 1 belongs to ana, 2 to bo, 3 to cy, 4 to nobody, 5 to somebody the policy does not know.
PEOPLE = [
    (1, "Ada", "ada@example.test", "canary-salary-1", "ana", "eu"),
    (2, "Bob", "bob@example.test", "canary-salary-2", "bo", "us"),
    (3, "Cay", "cay@example.test", "canary-salary-3", "cy", "eu"),
    (4, "Dan", "dan@example.test", "canary-salary-4", None, None),
    (5, "Eve", "eve@example.test", "canary-salary-5", "ghost", "us"),
]

POLICY = """
    policy: 1
    roles:
      director: {objects: {Person: {fields: all, rows: own_and_subordinates, owner_field: owner}}}
      manager:
        parent: director
        objects: {Person: {fields: [name, email], rows: own_and_subordinates, owner_field: owner}}
      seller: {parent: manager, objects: {Person: {fields: [name, email], rows: own, owner_field: owner}}}
      directory: {objects: {Person: {fields: [name], rows: all}}}
      clerk: {inherits: [directory], objects: {Person: {fields: all, rows: own, owner_field: owner}}}
      support: {objects: {Person: {fields: [name, email], rows: own, owner_field: owner}}}
      payroll: {objects: {Person: {fields: [salary], rows: own, owner_field: owner}}}
      former: {objects: {Person: {read: false, fields: all, rows: all}}}
      nothing: {}
    users:
      dee: {roles: [director]}
      mo: {roles: [manager]}
      ana: {roles: [seller]}
      bo: {roles: [seller]}
      cy: {roles: [clerk]}
      su: {roles: [support]}
      both: {roles: [support, payroll]}
      look: {roles: [directory]}
      left: {roles: [director], active: false}
      none: {}
      idle: {roles: [nothing, former]}
    sharing:
      - {object: Person, when: [{field: region, in: [eu]}], with: [support]}
      - {object: Person, owned_by: seller, owner_field: owner, when: [{field: region, equals: us}], with: [payroll]}
"""


@pytest.fixture
def host(empty_database_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(empty_database_url)
    with engine.begin() as conn:
        conn.exec_driver_sql(
            "CREATE TABLE person (id integer PRIMARY KEY, name text, email text, salary text, owner text, region text)"
        )
        names = ("id", "name", "email", "salary", "owner", "region")
        table = sa.table("person", *(sa.column(name) for name in names))
        conn.execute(table.insert(), [dict(zip(names, row, strict=True)) for row in PEOPLE])
    yield engine
    engine.dispose()


@pytest.fixture
def records() -> SqlRecordStore:
    key = [{"column": "id", "type": "integer"}]
    fields = {name: name for name in (*FIELDS, "owner", "region")}
    return SqlRecordStore(
        [ObjectDeclaration.model_validate({"name": "Person", "table": "person", "key": key, "fields": fields})]
    )


@pytest.fixture
def authority(records: SqlRecordStore) -> PolicyAuthority:
    return PolicyAuthority(read_policy_text(dedent(POLICY)), records)


def ask(user: str, person: int, *fields: str, name: str = "Person") -> AuthorityRequest:
    ref = RecordRef(source_object=name, record_id=str(person))
    return AuthorityRequest(user_id=user, ref=ref, fields=fields or FIELDS)


def decide(
    authority: PolicyAuthority | AllowAllAuthority | CallableAuthority, engine: sa.Engine, *asked: AuthorityRequest
) -> list[AuthorityDecision | None]:
    with engine.connect() as conn:
        return authority.decide_reads(conn, asked)


def seen_by(authority: PolicyAuthority, engine: sa.Engine, user: str) -> dict[int, str]:
    """For each readable row the initials of the fields that the user may read."""
    answers = decide(authority, engine, *(ask(user, person) for person in range(1, 7)))
    readable: dict[int, str] = {}
    for person, answer in enumerate(answers, start=1):
        assert answer is not None
        assert set(answer.allowed_fields) | set(answer.denied_fields) == set(FIELDS)
        assert not set(answer.allowed_fields) & set(answer.denied_fields)
        if answer.row_readable:
            readable[person] = "".join(field[0] for field in answer.allowed_fields)
        else:
            assert answer.allowed_fields == ()
    return readable


@pytest.mark.rule("AU-01")
@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("look", dict.fromkeys(range(1, 7), "n")),  # every row, one field; whether the row exists is not told
        ("ana", {1: "ne"}),  # own rows only
        ("bo", {2: "ne"}),
        ("mo", {1: "ne", 2: "ne"}),  # and those of the sellers below
        ("dee", {1: "nes", 2: "nes"}),  # two levels up
        ("cy", {1: "n", 2: "n", 3: "nes", 4: "n", 5: "n", 6: "n"}),  # more fields in own rows, and only there
        ("su", {1: "ne", 3: "ne"}),  # shared by a condition
        ("both", {1: "ne", 2: "s", 3: "ne"}),  # each share opens the fields of its own role
        ("none", {}),
        ("idle", {}),
        ("left", {}),
    ],
)
def test_a_user_reads_by_object_row_and_field(
    authority: PolicyAuthority, host: sa.Engine, user: str, expected: Mapping[int, str]
) -> None:
    """Source values are read with the originating user's object, row and field permissions."""
    assert seen_by(authority, host, user) == expected


@pytest.mark.rule("AU-01")
def test_an_object_that_no_grant_names_is_closed(authority: PolicyAuthority, host: sa.Engine) -> None:
    answer = decide(authority, host, ask("dee", 1, name="Elsewhere"))[0]
    assert answer is not None
    assert answer.user_active
    assert not answer.row_readable
    assert answer.denied_fields == FIELDS


@pytest.mark.rule("GT-03")
def test_an_unknown_user_has_no_decision(authority: PolicyAuthority, host: sa.Engine) -> None:
    """No snapshot can be made of a user the policy does not know, however the name is spelled."""
    assert decide(authority, host, *(ask(user, 1) for user in ("ghost", "", "ANA", " ana", "ana "))) == [None] * 5


@pytest.mark.rule("AU-01", "D-38")
def test_an_inactive_user_reads_nothing(authority: PolicyAuthority, host: sa.Engine) -> None:
    answer = decide(authority, host, ask("left", 1))[0]
    assert answer is not None
    assert not answer.user_active
    assert not answer.row_readable
    assert answer.allowed_fields == ()
    with host.connect() as conn:
        assert authority.users_active(conn, ["ana", "left", "ghost", "ana"]) == [True, False, False, True]


@pytest.mark.rule("AU-05")
def test_a_denied_value_is_in_no_decision_error_or_log(
    authority: PolicyAuthority, host: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """Owners, regions and denied fields are looked at and dropped."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy").setLevel(logging.WARNING)
    users = [*authority.document.policy.users, "ghost"]
    answers = decide(authority, host, *(ask(user, person) for user in users for person in range(1, 7)))
    said = repr([dataclasses.asdict(answer) for answer in answers if answer]) + caplog.text
    values = {str(value) for row in PEOPLE for value in row[1:] if value is not None}
    assert not [value for value in values if f"{value}'" in said or "canary" in said]


def test_a_decision_names_only_what_was_asked_and_once(authority: PolicyAuthority, host: sa.Engine) -> None:
    answer = decide(authority, host, ask("dee", 1, "email", "email", "name"))[0]
    assert answer is not None
    assert answer.allowed_fields == ("email", "name")
    with host.connect() as conn:
        none = AuthorityRequest(user_id="ana", ref=RecordRef(source_object="Person", record_id="1"), fields=())
        answer = authority.decide_reads(conn, [none])[0]
    assert answer is not None
    assert answer.row_readable
    assert (answer.allowed_fields, answer.denied_fields) == ((), ())


@pytest.mark.rule("AU-01")
def test_what_the_host_has_just_written_decides(authority: PolicyAuthority, host: sa.Engine) -> None:
    """Rows are read on the caller's connection, so an owner changed in the same transaction counts."""
    with host.connect() as conn:
        conn.exec_driver_sql("UPDATE person SET owner = 'bo' WHERE id = 1")
        ana, bo = authority.decide_reads(conn, [ask("ana", 1), ask("bo", 1)])
    assert ana is not None
    assert bo is not None
    assert (ana.row_readable, bo.row_readable) == (False, True)


def test_a_set_of_requests_is_few_reads(authority: PolicyAuthority, host: sa.Engine) -> None:
    requests = [ask(user, person) for user, person in itertools.product(["ana", "mo", "su", "look"], range(1, 7))]
    seen: list[str] = []
    with host.connect() as conn:
        authority.decide_reads(conn, requests[:1])
        sa.event.listen(host, "before_cursor_execute", lambda _c, _cu, statement, *_rest: seen.append(statement))
        authority.decide_reads(conn, requests)
        assert len(seen) == 2  # one for each set of fields that decide
        seen.clear()
        authority.decide_reads(conn, [ask("look", 1), ask("none", 1), ask("left", 1), ask("ghost", 1)])
    assert seen == []


def test_the_digest_is_of_what_the_policy_says(records: SqlRecordStore) -> None:
    text = dedent(POLICY)
    same = text.replace(
        "look: {roles: [directory]}", "look:\n    roles:\n      - directory   # a comment\n    active: true"
    )
    other = text.replace("look: {roles: [directory]}", "look: {roles: [support]}")
    digests = [PolicyAuthority(read_policy_text(each), records).policy_digest for each in (text, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_owners_may_be_numbers(host: sa.Engine, records: SqlRecordStore) -> None:
    with host.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE task (id integer PRIMARY KEY, owner_id integer)")
        conn.exec_driver_sql("INSERT INTO task VALUES (1, 42), (2, 43)")
    key = [{"column": "id", "type": "integer"}]
    records.declare(ObjectDeclaration.model_validate({"name": "Task", "table": "task", "key": key}))
    grant = "{fields: all, rows: own, owner_field: owner_id}"
    text = f"policy: 1\nroles: {{worker: {{objects: {{Task: {grant}}}}}}}\nusers: {{42: {{roles: [worker]}}}}\n"
    answers = decide(
        PolicyAuthority(read_policy_text(text), records), host, ask("42", 1, name="Task"), ask("42", 2, name="Task")
    )
    assert [answer and answer.row_readable for answer in answers] == [True, False]


# --------------------------------------------------------------------------------------- documents


MISTAKES = {
    "duplicate key": ("policy: 1\nroles: {}\nusers: {}\nusers: {}\n", "4:1: users: "),
    "unknown key": ("policy: 1\nroles: {}\nusers: {a: {role: [x]}}\n", "3:13: users.a.role: "),
    "missing key": ("policy: 1\nusers: {}\n", "1:1: roles: "),
    "wrong kind": ("policy: 1\nroles: {}\nusers: {a: {active: yes}}\n", "3:21: users.a.active: "),
    "unknown version": ("policy: 2\nroles: {}\nusers: {}\n", "1:9: policy: "),
    "unknown scope": (
        "policy: 1\nusers: {}\nroles: {r: {objects: {A: {fields: all, rows: some}}}}\n",
        "3:46: roles.r.objects.A.rows: ",
    ),
    "no scope": ("policy: 1\nusers: {}\nroles: {r: {objects: {A: {fields: all}}}}\n", "3:26: roles.r.objects.A.rows: "),
    "bad field name": (
        "policy: 1\nusers: {}\nroles: {r: {objects: {A: {fields: ['a b'], rows: all}}}}\n",
        "3:36: roles.r.objects.A.fields[0]: ",
    ),
    "unknown role of a user": ("policy: 1\nroles: {}\nusers: {a: {roles: [x]}}\n", "3:21: users.a.roles[0]: "),
    "unknown parent": ("policy: 1\nusers: {}\nroles: {a: {parent: x}}\n", "3:21: roles.a.parent: "),
    "unknown inherited role": ("policy: 1\nusers: {}\nroles: {a: {inherits: [x]}}\n", "3:24: roles.a.inherits[0]: "),
    "circle of parents": (
        "policy: 1\nusers: {}\nroles:\n  a: {parent: b}\n  b: {parent: a}\n",
        "4:15: roles.a.parent: ",
    ),
    "own parent": ("policy: 1\nusers: {}\nroles: {a: {parent: a}}\n", "3:21: roles.a.parent: "),
    "circle of inheritance": (
        "policy: 1\nusers: {}\nroles:\n  a: {inherits: [b]}\n  b: {inherits: [a]}\n",
        "4:17: roles.a.inherits: ",
    ),
    "own rows without an owner": (
        "policy: 1\nusers: {}\nroles: {r: {objects: {A: {fields: all, rows: own}}}}\n",
        "3:26: roles.r.objects.A: ",
    ),
    "share of everything": (
        "policy: 1\nusers: {}\nroles: {r: {}}\nsharing: [{object: A, with: [r]}]\n",
        "4:11: sharing[0]: ",
    ),
    "share with nobody": (
        "policy: 1\nusers: {}\nroles: {}\nsharing: [{object: A, when: [{field: a, equals: 1}], with: []}]\n",
        "4:60: sharing[0].with: ",
    ),
    "share without a test": (
        "policy: 1\nusers: {}\nroles: {r: {}}\nsharing: [{object: A, when: [{field: a}], with: [r]}]\n",
        "4:30: sharing[0].when[0]: ",
    ),
    "share by an owner without a field": (
        "policy: 1\nusers: {}\nroles: {r: {}}\nsharing: [{object: A, owned_by: r, with: [r]}]\n",
        "4:11: sharing[0]: ",
    ),
    "fields left empty": (
        "policy: 1\nusers: {}\nroles: {r: {objects: {A: {fields: , rows: all}}}}\n",
        "3:27: roles.r.objects.A.fields: Write `all`, or a list",
    ),
    "anchor": ("policy: 1\nroles: {a: &x {}}\nusers: {}\n", "2:12: roles.a: "),
    "not a mapping": ("- 1\n", "1:1: (document): "),
    "nothing": ("# only this\n\n", "0:0: (document): "),
    "not YAML": ("policy: [1\n", "2:1: "),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_policy_is_named_with_its_place(mistake: str) -> None:
    text, place = MISTAKES[mistake]
    with pytest.raises(ConfigurationError) as caught:
        read_policy_text(text, file="p.yaml")
    assert caught.value.code is Code.POLICY_INVALID
    findings = caught.value.evidence["findings"]
    assert isinstance(findings, list)
    assert [finding for finding in findings if finding.startswith(f"p.yaml:{place}")], findings


def test_names_that_the_record_store_does_not_know_are_found(records: SqlRecordStore) -> None:
    grant = "{fields: [name, nome], rows: own, owner_field: boss}"
    text = (
        f"policy: 1\nusers: {{}}\nroles:\n  r: {{objects: {{Person: {grant}, People: {{fields: all, rows: all}}}}}}\n"
    )
    text += "sharing: [{object: Person, when: [{field: zone, equals: a}], with: [r]}]\n"
    findings = check_names(read_policy_text(text, file="p.yaml"), records)
    assert [finding.path for finding in findings] == [
        "roles.r.objects.Person.fields[1]",
        "roles.r.objects.Person.owner_field",
        "roles.r.objects.People",
        "sharing[0].when[0].field",
    ]
    assert check_names(read_policy_text(dedent(POLICY)), records) == ()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"policy: 1 # \xff\n")
    for name in ("missing.yaml", "latin.yaml"):
        with pytest.raises(ConfigurationError, match=name) as caught:
            read_policy(tmp_path / name)
        assert caught.value.code is Code.POLICY_INVALID


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_example_policies_hold_together(path: Path) -> None:
    assert read_policy(path).policy.users


# --------------------------------------------------------------------------------------- other authorities


def test_allow_all_lets_every_named_user_read_everything(host: sa.Engine) -> None:
    authority = AllowAllAuthority()
    known, nameless = decide(authority, host, ask("anybody", 1), ask("", 1))
    assert nameless is None
    assert known is not None
    assert (known.user_active, known.row_readable, known.denied_fields) == (True, True, ())
    assert known.allowed_fields == FIELDS
    with host.connect() as conn:
        assert authority.users_active(conn, ["anybody", ""]) == [True, False]
    assert "allow_all" in authority.summary()


@pytest.mark.rule("AU-01", "GT-03")
def test_a_hosts_function_is_never_widened(host: sa.Engine) -> None:
    """Fields nobody asked for are dropped; a closed row or an inactive user has no fields, whatever the host says."""
    answers: list[HostAnswer | None] = [
        HostAnswer(readable=True, fields={"name", "email", "unasked"}),
        HostAnswer(readable=False, fields=None),
        HostAnswer(readable=True, fields=None, active=False),
        HostAnswer(readable=True),
        None,
    ]

    def host_decides(conn: sa.Connection, requests: Sequence[AuthorityRequest]) -> Sequence[HostAnswer | None]:
        assert conn.exec_driver_sql("SELECT 1").scalar() == 1
        return answers[: len(requests)]

    authority = CallableAuthority(host_decides, lambda _conn, users: [user == "ana" for user in users], version="7")
    some, closed, gone, every, unknown = decide(authority, host, *(ask("ana", 1, "name", "salary") for _ in answers))
    assert unknown is None
    assert some is not None
    assert (some.allowed_fields, some.denied_fields) == (("name",), ("salary",))
    assert closed is not None
    assert (closed.row_readable, closed.allowed_fields) == (False, ())
    assert gone is not None
    assert (gone.user_active, gone.row_readable, gone.allowed_fields) == (False, False, ())
    assert every is not None
    assert every.allowed_fields == ("name", "salary")
    assert every.policy_digest == authority.policy_digest
    with host.connect() as conn:
        assert authority.users_active(conn, ["ana", "bo"]) == [True, False]
        assert authority.decide_reads(conn, []) == []


def test_a_hosts_function_answers_every_question(host: sa.Engine) -> None:
    authority = CallableAuthority(lambda _conn, _requests: [], lambda _conn, _users: [], version="1")
    with pytest.raises(CallerError, match="decide"):
        decide(authority, host, ask("ana", 1))
    with host.connect() as conn, pytest.raises(CallerError, match="users_active"):
        authority.users_active(conn, ["ana"])
