from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pushlink.errors import Code, Finding, PackError
from pushlink.packs.loader import FILE_BYTES_MAX, load_pack, load_pack_text, read_pack, read_pack_text
from pushlink.packs.tree import DEPTH_MAX

GOOD = """\
pack: sample
version: 1.0.0
connector_owner_key: owner-1
namespace: sample
profiles:
  main:
    base_url: https://api.example.com
    credential_ref: env:SAMPLE_TOKEN
destinations:
  - {destination_slot_id: dest-1, target_object: things, profile: main}
flows:
  - flow: Things
    version: 3
    actions:
      - action: push_thing
        action_slot_id: act-1
        source_object: Thing
        destination: dest-1
        create:
          path: /things
          response:
            id:
              - from: $response.body#/id
        update:
          path: /things/{remote_id}
        mappings:
          - {source: name, target: /name}
"""


def findings(text: str) -> list[Finding]:
    with pytest.raises(PackError) as caught:
        read_pack_text(text, file="sample.yaml")
    assert caught.value.code is Code.PACK_INVALID
    assert caught.value.findings
    return list(caught.value.findings)


def only(text: str) -> tuple[int, int, str, str]:
    (finding,) = findings(text)
    assert finding.file == "sample.yaml"
    return finding.line, finding.column, finding.path, finding.message


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_a_sound_document_becomes_a_pack_with_text_versions_and_tuples() -> None:
    document = read_pack_text(GOOD)
    assert document.findings == ()
    pack = document.pack
    assert (pack.version, pack.flows[0].version) == ("1.0.0", "3")
    assert isinstance(pack.flows[0].actions[0].create.success.status, tuple)
    assert load_pack_text(GOOD) == pack


def test_variables_in_an_address_are_filled_when_the_file_is_read() -> None:
    """The pack, its sandbox and its digest have whole addresses: as if they had been written out."""
    [line] = [line for line in GOOD.splitlines() if "base_url" in line]
    indent = line[: len(line) - len(line.lstrip())]
    place = indent + "base_url: https://{dc}.api.example.com/{version}"
    more = f"{indent}variables: {{dc: us1, version: v3}}"
    sandbox = indent + 'sandbox: {base_url: "https://{dc}.sandbox.example.com", variables: {dc: eu1}}'
    pack = read_pack_text(GOOD.replace(line, f"{place}\n{more}\n{sandbox}")).pack
    [profile] = pack.profiles.values()
    assert profile.base_url == "https://us1.api.example.com/v3"
    assert profile.sandbox is not None
    assert profile.sandbox.base_url == "https://eu1.sandbox.example.com"
    written = place.replace("{dc}", "us1").replace("{version}", "v3")
    elsewhere = sandbox.replace("https://{dc}", "https://eu1")
    spelled = read_pack_text(GOOD.replace(line, f"{written}\n{more}\n{elsewhere}")).pack
    assert spelled.document() == pack.document()


MISTAKES = {
    "a missing key stands at what should hold it": (
        changed("          path: /things\n", ""),
        (20, 11, "flows[0].actions[0].create.path", "`path` is missing. Add it here."),
    ),
    "a missing key at the top": (
        changed("namespace: sample\n", ""),
        (1, 1, "namespace", "`namespace` is missing. Add it here."),
    ),
    "an unknown key stands at the key, with the closest known one": (
        changed("        mappings:", "        mapings: []\n        mappings:"),
        (26, 9, "flows[0].actions[0].mapings", "`mapings` is no key here. Did you mean `mappings`?"),
    ),
    "an unknown key far from any other": (
        changed("flow: Things", "flow: Things\n    colour: red"),
        (13, 5, "flows[0].colour", "`colour` is no key here. Known are: flow, version, actions."),
    ),
    "an unknown key in a list of one-liners": (
        changed("target: /name}", "target: /name, sorce: x}"),
        (27, 43, "flows[0].actions[0].mappings[0].sorce", "`sorce` is no key here. Did you mean `source`?"),
    ),
    "the name that Python uses is not the key": (
        changed("- from: $", "- source: $"),
        None,
    ),
    "a number where text is wanted": (
        changed("namespace: sample", "namespace: 42"),
        (4, 12, "namespace", 'Write text here: put it in quotes, "42".'),
    ),
    "a truth value where text is wanted": (
        changed("namespace: sample", "namespace: true"),
        (4, 12, "namespace", 'Write text here: put it in quotes, "true".'),
    ),
    "a number with a fraction": (
        changed("version: 1.0.0", "version: 1.0"),
        (2, 10, "version", 'A number with a fraction is not exact. Write it as text, in quotes: "1.0".'),
    ),
    "a version that is none": (
        changed("version: 1.0.0", 'version: "1.0"'),
        (2, 10, "version", "Write three numbers, as in 1.4.0."),
    ),
    "an exponent": (
        changed("owner-1", "12e3"),
        (3, 22, "connector_owner_key", 'A number with a fraction is not exact. Write it as text, in quotes: "12e3".'),
    ),
    "a leading zero": (
        changed("owner-1", "0123"),
        (3, 22, "connector_owner_key", 'A number does not start with 0. If it is text, put it in quotes: "0123".'),
    ),
    "nothing where text is wanted": (
        changed("namespace: sample", "namespace:"),
        (4, 1, "namespace", "Nothing is written here. Write text, or remove the key if you do not need it."),
    ),
    "a text where a whole number is wanted": (
        changed("path: /things\n", "path: /things\n          success: {status: [201, ok]}\n"),
        (21, 35, "flows[0].actions[0].create.success.status[1]", "Write a whole number here, not text."),
    ),
    "a status out of range": (
        changed("path: /things\n", "path: /things\n          success: {status: [404]}\n"),
        (21, 30, "flows[0].actions[0].create.success.status[0]", "Write 299 or less."),
    ),
    "an empty list": (
        changed("  - {destination_slot_id: dest-1, target_object: things, profile: main}\n", "  []\n"),
        (10, 3, "destinations", "This is empty. Write at least one entry."),
    ),
    "a word outside of a closed list": (
        changed("path: /things\n", "path: /things\n          method: DELETE\n"),
        (21, 19, "flows[0].actions[0].create.method", "Write one of 'POST', 'PUT', 'PATCH' or 'MERGE'."),
    ),
    "a duration without a unit": (
        changed("env:SAMPLE_TOKEN\n", "env:SAMPLE_TOKEN\n    timeouts: {total: 30}\n"),
        (
            9,
            23,
            "profiles.main.timeouts.total",
            "Write a duration as a whole number and a unit, such as 500ms, 5s, 10m, 2h or 1d.",
        ),
    ),
    "a duration that is optional": (
        changed("env:SAMPLE_TOKEN\n", "env:SAMPLE_TOKEN\n    expires_after: soon\n"),
        (
            9,
            20,
            "profiles.main.expires_after",
            "Write a duration as a whole number and a unit, such as 500ms, 5s, 10m, 2h or 1d.",
        ),
    ),
    "a duration of years": (
        changed("env:SAMPLE_TOKEN\n", "env:SAMPLE_TOKEN\n    expires_after: 367d\n"),
        (9, 20, "profiles.main.expires_after", "Write a duration of at most 366 days."),
    ),
    "a list where a scalar is wanted": (
        changed("{source: name, target: /name}", "{constant: [1], target: /name}"),
        (
            27,
            24,
            "flows[0].actions[0].mappings[0].constant",
            "Write text or a whole number or true or false here, not a list.",
        ),
    ),
    "a slot id with a space": (
        changed("action_slot_id: act-1", "action_slot_id: act 1"),
        (
            16,
            25,
            "flows[0].actions[0].action_slot_id",
            "Write 1 to 128 letters, digits, dots, underscores or hyphens; a UUID is best.",
        ),
    ),
    "a target that is no pointer": (
        changed("target: /name", "target: name"),
        (
            27,
            36,
            "flows[0].actions[0].mappings[0].target",
            "Write a JSON Pointer such as /a/b; a slash inside a name is ~1.",
        ),
    ),
    "a key with a dot in its path": (
        changed("env:SAMPLE_TOKEN\n", "env:SAMPLE_TOKEN\n    headers: {X-Api.Version: 2}\n"),
        (9, 30, 'profiles.main.headers["X-Api.Version"]', 'Write text here: put it in quotes, "2".'),
    ),
    "no mapping at all": (
        "- pack\n",
        (1, 1, "", "Write keys with values here, not a list."),
    ),
    "only a word": (
        "pack\n",
        (1, 1, "", "Write keys with values here, not text."),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_where_it_stands(name: str) -> None:
    text, expected = MISTAKES[name]
    if expected is None:
        assert {finding.path.rpartition(".")[2] for finding in findings(text)} == {"from", "source"}
    else:
        assert only(text) == expected


def test_all_mistakes_of_a_document_are_told_at_once_in_its_order() -> None:
    text = changed("namespace: sample", "namespace: 1").replace("path: /things\n", "path: 2\n")
    text = text.replace("target: /name}", "target: 3}").replace("flow: Things", "flw: Things")
    found = findings(text)
    assert [(finding.line, finding.path) for finding in found] == [
        (4, "namespace"),
        (12, "flows[0].flow"),
        (12, "flows[0].flw"),
        (20, "flows[0].actions[0].create.path"),
        (27, "flows[0].actions[0].mappings[0].target"),
    ]


def test_an_error_names_the_first_finding_the_file_and_the_next_step() -> None:
    with pytest.raises(PackError) as caught:
        read_pack_text(changed("namespace: sample", "namespace: 42"), file="sample.yaml")
    assert str(caught.value) == (
        "The pack sample.yaml has one thing to mend. The first: sample.yaml:4:12: namespace: "
        'Write text here: put it in quotes, "42". Next: pushlink pack check sample.yaml'
    )


# What YAML can do and a pack must not.

REFUSED = {
    "duplicate key": ("a: 1\nb: 2\na: 3\n", (3, 1, "a"), "`a` is written a second time; the first is in line 1"),
    "duplicate key in quotes": ('a: 1\n"a": 3\n', (2, 1, "a"), "written a second time"),
    "duplicate key in one line": ("x: {a: 1, a: 2}\n", (1, 11, "x.a"), "written a second time"),
    "anchor": ("a: &x 1\n", (1, 4, "a"), "Anchors are refused: remove `&x`"),
    "anchor on a list": ("a: &x [1]\n", (1, 4, "a"), "Anchors are refused"),
    "anchor on a key": ("&x a: 1\n", (1, 1, ""), "Anchors are refused"),
    "alias": ("a: &x 1\nb: *x\n", (2, 4, "b"), "Aliases are refused"),
    "alias as a key": ("a: &x 1\n*x : 2\n", (2, 1, ""), "Aliases are refused"),
    "merge key": ("a: {<<: {b: 1}}\n", (1, 5, "a"), "Merge keys are refused"),
    "custom tag": ("a: !thing 1\n", (1, 4, "a"), "Tags are refused: remove `!thing`"),
    "standard tag": ("a: !!str 1\n", (1, 4, "a"), "Tags are refused: remove `!!str`"),
    "python tag": ("a: !!python/object/apply:os.system [ls]\n", (1, 4, "a"), "Tags are refused"),
    "tag on a mapping": ("a: !!map {b: 1}\n", (1, 4, "a"), "Tags are refused"),
    "second document": ("a: 1\n---\nb: 2\n", (2, 1, ""), "A second document starts here"),
    "older YAML": ("%YAML 1.1\n---\na: 1\n", (2, 1, ""), "Remove the directives"),
    "YAML of a later day": ("%YAML 1.22\n---\na: 1\n", (0, 0, ""), "This is not YAML"),
    "tag directive": ("%TAG ! tag:example.com,2000:\n---\na: 1\n", (2, 1, ""), "Remove the directives"),
    "list as a key": ("? [a, b]\n: 1\n", (1, 3, ""), "A key is text"),
    "empty key": ("'': 1\n", (1, 1, ""), "This key is empty"),
    "shouted truth": ("a: TRUE\n", (1, 4, "a"), "Write true in small letters"),
    "capital null": ("a: Null\n", (1, 4, "a"), "Write null in small letters"),
    "infinity": ("a: .inf\n", (1, 4, "a"), "not exact"),
    "not a number": ("a: .nan\n", (1, 4, "a"), "not exact"),
    "long number": (f"a: {2**53}\n", (1, 4, "a"), f'too long to be kept exact. Write it as text, in quotes: "{2**53}"'),
    "number of thousands of digits": ("a: " + "9" * 5000 + "\n", (1, 4, "a"), "too long to be kept exact"),
    "half a character": ('a: "\\ud800"\n', (1, 4, "a"), "half a character"),
    "escape beyond Unicode": ('a: "\\U00110000"\n', (1, 5, ""), "An escape in double quotes names no character"),
    "escape beyond everything": ('a: "\\U99999999"\n', (1, 5, ""), "An escape in double quotes names no character"),
    "NUL escape": ('a: "\\0"\n', (1, 4, "a"), "NUL"),
    "NUL escape in a key": ('"a\\0": 1\n', (1, 1, ""), "NUL"),
    "control character": ("a: 1\nb: \x07\n", (2, 4, ""), "control character"),
    "tab for indentation": ("a:\n\tb: 1\n", (2, 1, ""), "This is not YAML"),
    "unclosed bracket": ("a: [1, 2\n", (2, 1, ""), "This is not YAML"),
    "two colons": ("a: b: c\n", (1, 5, ""), "mapping values are not allowed here"),
    "undefined alias": ("a: *nobody\n", (1, 4, "a"), "Aliases are refused"),
    "nothing": ("", (1, 1, ""), "The document is empty"),
    "comments only": ("# pack\n", (1, 1, ""), "The document is empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_yaml_surprising_is_refused_by_place(name: str) -> None:
    text, (line, column, path), words = REFUSED[name]
    told = [found for found in findings(text) if words in found.message]
    assert [(found.line, found.column, found.path) for found in told] == [(line, column, path)]


def constant(written: str) -> object:
    text = changed("{source: name, target: /name}", f"{{constant: {written}, target: /name}}")
    return read_pack_text(text).pack.flows[0].actions[0].mappings[0].constant


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        (str(2**53 - 1), 2**53 - 1),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("22:22", "22:22"),
        ("1:30:00", "1:30:00"),
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("'1'", "1"),
        ('"true"', "true"),
        ('"1.5"', "1.5"),
        ("'~'", "~"),
        ('"\\u00e9"', "é"),
        ("Åland", "Åland"),
        ('"\\ud83c\\udde6"', "\U0001f1e6"),
        ("=", "="),
    ],
)
def test_a_plain_word_is_what_it_looks_like(written: str, value: object) -> None:
    read = constant(written)
    assert read == value
    assert type(read) is type(value)


def test_a_key_is_its_text() -> None:
    mapping = "{source: name, target: /name, encode: {enum_map: {1: a, no: b, 2024-05-01: c}}}"
    text = changed("{source: name, target: /name}", mapping)
    assert read_pack_text(text).pack.flows[0].actions[0].mappings[0].encode.enum_map == {
        "1": "a",
        "no": "b",
        "2024-05-01": "c",
    }
    text = changed("{source: name, target: /name}", "{source: a, target: /a, encode: {bool_map: {true: Y, false: N}}}")
    assert read_pack_text(text).pack.flows[0].actions[0].mappings[0].encode.bool_map == {"true": "Y", "false": "N"}


def test_a_value_that_the_tree_refused_is_not_told_twice() -> None:
    assert len(findings(changed("namespace: sample", "namespace: 1.5"))) == 1
    assert len(findings(changed("namespace: sample", "namespace: &x 15"))) == 1


def test_laughing_documents_are_refused_in_no_time() -> None:
    """Aliases never multiply: each is refused where it stands, and nothing is expanded."""
    lines = ["a0: &a0 [lol, lol]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    started = time.monotonic()
    assert len(findings("\n".join(lines))) > 80
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_bounded(opening: str) -> None:
    (found,) = findings("a:\n  " + opening * 100_000)
    assert f"at most {DEPTH_MAX} levels" in found.message


def test_a_deep_envelope_within_the_bound_loads() -> None:
    deep = "{a: " * 15 + "{}" + "}" * 15
    read_pack_text(changed("path: /things\n", f"path: /things\n          body: {{envelope: {deep}}}\n"))


# Files.


def test_a_pack_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_pack(path) == load_pack_text(GOOD)
    assert read_pack(str(path)).file == str(path)


def test_a_file_that_is_not_utf_8_is_refused_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_bytes("pack: é\nversion: ".encode() + b"\xff\n")
    with pytest.raises(PackError) as caught:
        load_pack(path)
    (found,) = caught.value.findings
    assert (found.line, found.column) == (2, 10)
    assert "UTF-8" in found.message
    path.write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(PackError, match="UTF-8"):
        load_pack(path)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    padding = "#" * (FILE_BYTES_MAX - len(GOOD))
    path.write_text(GOOD + padding)
    load_pack(path)
    path.write_text(GOOD + padding + "#")
    with pytest.raises(PackError, match="larger than 1048576 bytes"):
        load_pack(path)


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path / "absent.yaml", tmp_path, fifo):
        with pytest.raises(PackError, match="no such file") as caught:
            load_pack(path)
        assert str(path) in str(caught.value)


@pytest.mark.rule("C-013")
@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("        create:\n", "        creates: [{}]\n        create:\n", "creates"),
        ("        create:\n", "        create:\n          path: /first\n        create:\n", "create"),
        ("        update:\n", "        second_create: {path: /more}\n        update:\n", "second_create"),
        ("        update:\n", "          then: {path: /more}\n        update:\n", "create.then"),
    ],
)
def test_a_pack_that_would_need_two_creates_in_one_attempt_is_rejected(old: str, new: str, path: str) -> None:
    """One slot and one attempt for each remote object: there is no shape in which an action creates two."""
    found = only(changed(old, new))
    assert found[2] == f"flows[0].actions[0].{path}"


@pytest.mark.rule("C-013")
def test_a_list_of_creates_is_rejected_and_says_why() -> None:
    start, end = GOOD.index("        create:"), GOOD.index("        update:")
    text = GOOD[:start] + "        create: [{path: /first}, {path: /second}]\n" + GOOD[end:]
    line, column, path, message = only(text)
    assert (line, column, path) == (19, 17, "flows[0].actions[0].create")
    assert "One action creates exactly one remote record" in message


@pytest.mark.rule("C-002")
@pytest.mark.parametrize("key", ["retries", "max_retries", "retry_on_timeout", "retry_on"])
@pytest.mark.parametrize("where", ["profile", "create", "retry"])
def test_a_pack_cannot_ask_for_retries_of_the_library_kind(key: str, where: str) -> None:
    """No key repeats a request whose outcome is not known; the nearest-looking ones are refused by name."""
    text = {
        "profile": changed("env:SAMPLE_TOKEN\n", f"env:SAMPLE_TOKEN\n    {key}: 3\n"),
        "create": changed("path: /things\n", f"path: /things\n          {key}: 3\n"),
        "retry": changed("env:SAMPLE_TOKEN\n", f"env:SAMPLE_TOKEN\n    retry: {{{key}: 3}}\n"),
    }[where]
    assert "a request is sent again only when nothing was applied, by proof" in only(text)[3]


@pytest.mark.rule("D-28")
@pytest.mark.parametrize("key", ["follow_redirects", "allow_redirects", "max_redirects"])
def test_a_pack_cannot_ask_for_redirects(key: str) -> None:
    text = changed("env:SAMPLE_TOKEN\n", f"env:SAMPLE_TOKEN\n    {key}: true\n")
    assert "redirects are never followed" in only(text)[3]


def test_no_finding_repeats_a_secret_that_stands_in_the_wrong_place() -> None:
    """What somebody wrote where only its name belongs is not copied into a message or a log."""
    for old, new in (
        ("credential_ref: env:SAMPLE_TOKEN", "credential_ref: s3cr3t"),
        ("https://api.example.com", "https://user:s3cr3t@api.example.com"),
        ("env:SAMPLE_TOKEN\n", "env:SAMPLE_TOKEN\n    headers: {X-Api-Key: s3cr3t}\n"),
    ):
        with pytest.raises(PackError) as caught:
            load_pack_text(changed(old, new))
        assert "s3cr3t" not in f"{caught.value} {caught.value.evidence}"
