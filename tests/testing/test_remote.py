from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pushlink.testing.collection import Collections, Dedupe, RateWindow, RemoteOptions, State
from pushlink.testing.messages import Asked, anything, creating, updating
from pushlink.testing.remote import FaultyRemote
from pushlink.testing.verbs import (
    answer,
    answer_raw,
    bad_encoding,
    close_after_read,
    close_before_read,
    hang,
    refuse_connection,
    short_body,
    store_then_answer,
    store_then_close,
    store_then_delay,
    truncate,
)


class Now:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Client:
    """One connection for each call, so that nothing is sent twice by a library."""

    def __init__(self, remote: FaultyRemote) -> None:
        self.remote = remote

    def call(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = 5.0,
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.remote.port, timeout=timeout)
        body = None if document is None else document if isinstance(document, bytes) else json.dumps(document).encode()
        try:
            connection.request(method, self.remote.api.options.prefix + path, body=body, headers=headers or {})
            with connection.getresponse() as response:
                return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def post(self, document: Any, **more: Any) -> tuple[int, dict[str, str], bytes]:
        return self.call("POST", "/people", document, **more)


Open = Callable[..., Client]


@pytest.fixture
def open_remote() -> Iterator[Open]:
    opened: list[FaultyRemote] = []

    def open_(**options: Any) -> Client:
        opened.append(FaultyRemote(RemoteOptions(**options)).start())
        return Client(opened[-1])

    yield open_
    for remote in opened:
        remote.close()


# ------------------------------------------------------------------------------------- the collection API


def test_a_created_record_is_read_updated_replaced_listed_and_deleted(open_remote: Open) -> None:
    """The API does what its name says, and the create counter counts creates alone."""
    client = open_remote(prefix="/api/v1")
    assert client.remote.base_url.endswith("/api/v1")
    status, _, body = client.post({"name": "Ada", "note": "x"})
    assert (status, json.loads(body)) == (201, {"name": "Ada", "note": "x", "id": 1})
    assert client.call("PATCH", "/people/1", {"name": "Ada L."})[0] == 200
    assert json.loads(client.call("GET", "/people/1")[2]) == {"name": "Ada L.", "note": "x", "id": 1}
    assert client.call("PUT", "/people/1", {"name": "Ada K."})[0] == 200
    assert client.remote.records[0].document == {"name": "Ada K.", "id": 1}
    assert client.call("POST", "/people/1", {"note": "y"})[0] == 200
    assert json.loads(client.call("GET", "/people?note=y")[2]) == {
        "records": [{"name": "Ada K.", "note": "y", "id": 1}]
    }
    assert client.call("DELETE", "/people/1")[0] == 204
    assert client.call("GET", "/people/1")[0] == 404
    assert client.remote.records == []
    assert client.remote.creates == 1
    assert client.remote.creates_by(lambda record: record.document["name"]) == {"Ada": 1}


@pytest.mark.parametrize(
    ("scheme", "first", "second"),
    [
        ("integer", "1", "2"),
        ("big_integer", "653247040368672768", "653247040368672769"),
        ("text", '"rec_000001"', '"rec_000002"'),
        (lambda number: f"a/b {number}", '"a/b 1"', '"a/b 2"'),
    ],
)
def test_ids_are_made_as_the_option_says(open_remote: Open, scheme: Any, first: str, second: str) -> None:
    """Each scheme shows its ids in the body digit by digit."""
    client = open_remote(ids=scheme, answers="id")
    assert [client.post({})[2].decode() for _ in range(2)] == [f'{{"id":{first}}}', f'{{"id":{second}}}']


def test_an_id_may_stand_in_the_location_header_alone(open_remote: Open) -> None:
    """A create may answer without a body; the id in the header is percent-encoded once."""
    client = open_remote(ids=lambda number: f"abc/{number}", answers="nothing", location=True, prefix="/v1")
    status, headers, body = client.post({"name": "Ada"})
    assert (status, headers["Location"], body) == (201, "/v1/people/abc%2F1", b"")
    assert client.call("PATCH", "/people/abc%2F1", {"name": "A"})[0] == 200


def test_uuid_ids_differ(open_remote: Open) -> None:
    """Two records never share an id."""
    client = open_remote(ids="uuid")
    assert client.post({})[2] != client.post({})[2]


def test_form_bodies_are_understood(open_remote: Open) -> None:
    """A form is a flat object of texts."""
    client = open_remote()
    client.post(b"name=Ada+L.&city=", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert client.remote.records[0].document == {"name": "Ada L.", "city": "", "id": 1}


def test_what_is_no_object_is_refused(open_remote: Open) -> None:
    """A body that cannot be a record creates none."""
    client = open_remote()
    assert [client.post(body)[0] for body in (b"[1]", b"{", b'"x"')] == [400, 400, 400]
    assert client.call("TRACE", "/people")[0] == 405
    assert client.call("GET", "/a/b/c")[0] == 404
    assert client.remote.creates == 0


def test_a_duplicate_names_the_record_that_is_there(open_remote: Open) -> None:
    """A unique field answers 409 with the id in a field and in a sentence."""
    client = open_remote(unique_fields=("email",))
    client.post({"email": "a@example.org"})
    status, _, body = client.post({"email": "a@example.org"})
    assert status == 409
    assert json.loads(body)["existing_id"] == "1"
    assert "Existing ID: 1" in json.loads(body)["message"]
    assert client.remote.creates == 1


def test_a_put_to_a_new_id_creates_where_that_is_on(open_remote: Open) -> None:
    """`If-None-Match: *` protects the record that is there already."""
    client = open_remote(put_creates=True)
    only_new = {"If-None-Match": "*"}
    assert client.call("PUT", "/people/x1", {"name": "A"}, headers=only_new)[0] == 201
    assert client.call("PUT", "/people/x1", {"name": "B"}, headers=only_new)[0] == 412
    assert client.call("PUT", "/people/x2", {"name": "B"}, headers={"If-Match": "*"})[0] == 412
    assert client.remote.creates == 1


def test_etags_guard_updates(open_remote: Open) -> None:
    """A strong tag is needed and must be the current one."""
    client = open_remote(etags="strong", requires_if_match=True)
    tag = client.post({"n": 1})[1]["ETag"]
    assert tag == '"v1"'
    assert client.call("PATCH", "/people/1", {"n": 2})[0] == 428
    assert client.call("PATCH", "/people/1", {"n": 2}, headers={"If-Match": tag})[0] == 200
    assert client.call("PATCH", "/people/1", {"n": 3}, headers={"If-Match": tag})[0] == 412
    assert client.call("PATCH", "/people/1", {"n": 3}, headers={"If-Match": "*"})[0] == 200


@pytest.mark.parametrize(("kind", "shown"), [("weak", 'W/"v2"'), ("stale", '"v1"')])
def test_weak_and_stale_etags_match_nothing(open_remote: Open, kind: str, shown: str) -> None:
    """What such a remote shows is of no use as a precondition."""
    client = open_remote(etags=kind)
    client.post({})
    client.call("PATCH", "/people/1", {})
    tag = client.call("GET", "/people/1")[1]["ETag"]
    assert tag == shown
    assert client.call("PATCH", "/people/1", {}, headers={"If-Match": tag})[0] == 412


def test_a_token_is_wanted_and_expires(open_remote: Open) -> None:
    """Without the current token nothing is done, by a lifetime or by decree."""
    now = Now()
    client = open_remote(token="one", token_seconds=60, clock=now)
    good = {"Authorization": "Bearer one"}
    assert client.post({})[0] == 401
    assert client.post({}, headers=good)[0] == 201
    now.seconds = 60
    status, headers, _ = client.post({}, headers=good)
    assert (status, headers["WWW-Authenticate"].split()[0]) == (401, "Bearer")
    client.remote.api.renew_token("two")
    assert client.post({}, headers=good)[0] == 401
    assert client.post({}, headers={"Authorization": "Bearer two"})[0] == 201
    client.remote.api.expire_token()
    assert client.post({}, headers={"Authorization": "Bearer two"})[0] == 401
    assert client.remote.creates == 2


def test_a_rate_window_tells_when_it_opens_again(open_remote: Open) -> None:
    """What is over the limit is answered 429 and takes no effect."""
    now = Now()
    client = open_remote(rate=RateWindow(requests=2, seconds=30), clock=now)
    assert [client.post({})[0] for _ in range(2)] == [201, 201]
    now.seconds = 10.5
    status, headers, _ = client.post({})
    assert (status, headers["Retry-After"]) == (429, "20")
    now.seconds = 30
    assert client.post({})[0] == 201
    assert client.remote.creates == 3


def test_a_key_is_remembered_for_its_lifetime(open_remote: Open) -> None:
    """The same key and body get the first answer; another body is a mismatch; afterwards the key means nothing."""
    now = Now()
    client = open_remote(dedupe=Dedupe(seconds=60), clock=now)
    key = {"Idempotency-Key": "k1"}
    first = client.post({"n": 1}, headers=key)
    again = client.post({"n": 1}, headers=key)
    assert (first[0], first[2]) == (again[0], again[2])
    assert again[1]["Idempotent-Replayed"] == "true"
    assert client.post({"n": 2}, headers=key)[0] == 422
    assert client.remote.creates == 1
    now.seconds = 60
    assert client.post({"n": 1}, headers=key)[0] == 201
    assert client.remote.creates == 2


def test_a_search_lags_and_a_read_does_not(open_remote: Open) -> None:
    """A list shows a record only after the lag; the record itself is there at once."""
    now = Now()
    client = open_remote(search_lag_seconds=30, clock=now)
    client.post({"email": "a@example.org"})
    assert json.loads(client.call("GET", "/people?email=a%40example.org")[2]) == {"records": []}
    assert client.call("GET", "/people/1")[0] == 200
    now.seconds = 30
    assert len(json.loads(client.call("GET", "/people?email=a%40example.org")[2])["records"]) == 1


@pytest.mark.parametrize(("answers", "status"), [("gone", 404), ("redirect", 301), ("survivor", 200)])
def test_a_merged_id_answers_as_the_option_says(open_remote: Open, answers: str, status: int) -> None:
    """Not found, moved, or the survivor under the old address."""
    client = open_remote(merged_answers=answers)
    client.post({"n": 1})
    client.post({"n": 2})
    client.remote.api.merge("people", 1, into=2)
    told, headers, body = client.call("PATCH", "/people/1", {"n": 3})
    assert told == status
    if answers == "redirect":
        assert headers["Location"] == "/people/2"
    if answers == "survivor":
        assert json.loads(body) == {"n": 3, "id": 2}
    assert client.remote.api.record("people", 1).state is State.MERGED


def test_archived_and_deleted_records_come_back(open_remote: Open) -> None:
    """Restore undoes both; an edit by somebody else is seen as a new version."""
    client = open_remote(archived_status=410, etags="strong")
    client.post({"n": 1})
    client.remote.api.archive("people", 1)
    assert client.call("GET", "/people/1")[0] == 410
    client.remote.api.restore("people", 1)
    client.remote.api.edit("people", 1, n=7)
    _, headers, body = client.call("GET", "/people/1")
    assert (json.loads(body)["n"], headers["ETag"]) == (7, '"v4"')
    client.remote.api.delete("people", 1)
    assert client.call("PATCH", "/people/1", {})[0] == 404


# ------------------------------------------------------------------------------------- the script


@pytest.mark.parametrize(
    ("verb", "stored"),
    [
        (store_then_close(), 1),
        (close_after_read(), 0),
        (short_body(), 1),
        (truncate(5), 1),
        (truncate(stores=False), 0),
        (answer_raw(b"\x16\x03\x01 this is no HTTP\r\n\r\n"), 0),
        (answer_raw(b"SSH-2.0\r\n", stores=True), 1),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_broken_answer_breaks_and_the_effect_is_what_the_verb_says(open_remote: Open, verb: Any, stored: int) -> None:
    """The client sees an error; the records tell the truth; the next request is served plainly."""
    client = open_remote()
    client.remote.next(verb, when=creating)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        client.post({"name": "Ada"})
    assert client.remote.creates == stored
    assert client.post({"name": "Grace"})[0] == 201
    assert [entry.verb for entry in client.remote.log] == [verb.name, "plainly"]


def test_an_answer_may_be_anything(open_remote: Open) -> None:
    """With and without the effect."""
    client = open_remote()
    client.remote.next(
        answer(422, {"error": "no"}), store_then_answer(503, body=b"<html>", headers=[("Retry-After", "30")])
    )
    assert client.post({})[0] == 422
    assert client.remote.creates == 0
    status, headers, body = client.post({})
    assert (status, headers["Retry-After"], body) == (503, "30", b"<html>")
    assert client.remote.creates == 1


def test_a_bad_encoding_says_gzip_and_is_not(open_remote: Open) -> None:
    """The framing is right, the body is not what its header says."""
    client = open_remote()
    client.remote.next(bad_encoding())
    status, headers, body = client.post({"a": 1})
    assert (status, headers["Content-Encoding"]) == (201, "gzip")
    assert body == b'\x00{"a":1,"id":1}'


@pytest.mark.parametrize(("verb", "stored"), [(store_then_delay(5), 1), (hang(), 0)])
def test_a_client_that_does_not_wait_is_not_told(open_remote: Open, verb: Any, stored: int) -> None:
    """The effect is there before the answer is."""
    client = open_remote()
    client.remote.next(verb)
    with pytest.raises(TimeoutError):
        client.post({}, timeout=0.1)
    assert client.remote.creates == stored


def test_a_connection_is_closed_before_it_is_read(open_remote: Open) -> None:
    """Nothing of the request is logged, for nothing of it was read."""
    client = open_remote()
    client.remote.next(close_before_read())
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        client.post({})
    assert client.remote.log == ()
    assert client.remote.connections == 1
    assert client.post({})[0] == 201


def test_verbs_that_no_server_can_play_are_refused(open_remote: Open) -> None:
    """A script that could never happen is a mistake of the test."""
    remote = open_remote().remote
    with pytest.raises(ValueError, match="would never reach"):
        remote.next(refuse_connection())
    with pytest.raises(ValueError, match="cannot be chosen"):
        remote.next(close_before_read(), when=creating)
    with pytest.raises(ValueError, match="how many"):
        remote.always(close_before_read())


def test_lines_are_played_once_and_rules_always(open_remote: Open) -> None:
    """A line is for the next request that fits; the newest rule wins; calm forgets all."""
    client = open_remote()
    client.post({})
    client.remote.always(answer(500))
    client.remote.always(answer(503), when=updating)
    client.remote.next(answer(400), when=updating)
    client.remote.next(answer(429), when=anything)
    assert client.post({})[0] == 429
    assert [client.call("PATCH", "/people/1", {})[0] for _ in range(3)] == [400, 503, 503]
    assert client.post({})[0] == 500
    client.remote.calm()
    assert client.post({})[0] == 201


def test_down_is_refused_and_up_is_at_the_same_port(open_remote: Open) -> None:
    """Nobody listens for a while; the records are still there afterwards."""
    client = open_remote()
    client.post({})
    with client.remote.down(), pytest.raises(ConnectionRefusedError):
        client.post({})
    assert client.call("GET", "/people/1")[0] == 200


def test_a_port_may_be_fixed() -> None:
    """A pack that names a port can be tested as it is."""
    with FaultyRemote() as first:
        port = first.port
    with FaultyRemote(port=port) as second:
        assert second.base_url == f"http://127.0.0.1:{port}"


# ------------------------------------------------------------------------------------- the log


def test_the_log_has_every_byte(open_remote: Open) -> None:
    """Head and body as they came, chunks and all, over one connection."""
    remote = open_remote().remote
    one = b'POST /people HTTP/1.1\r\nHost: x\r\nX-Odd:  two  \r\nContent-Length: 9\r\n\r\n{"n": 1 }'
    two = (
        b'POST /people HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"n"\r\n4;a=b\r\n: 2}\r\n0\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", remote.port), timeout=5) as sock:
        sock.sendall(one + two)
        assert remote.wait_until(lambda: len(remote.log) == 2)
    assert [entry.asked.raw for entry in remote.log] == [one, two]
    assert [entry.asked.body for entry in remote.log] == [b'{"n": 1 }', b'{"n": 2}']
    assert remote.log[0].asked.header("x-odd") == "two"
    assert [record.document["n"] for record in remote.records] == [1, 2]
    assert remote.connections == 1


def test_the_log_says_what_became_of_each_request(open_remote: Open) -> None:
    """Verb, status, and whether a record changed."""
    client = open_remote()
    client.post({})
    client.call("GET", "/people/1")
    client.remote.next(store_then_close())
    with pytest.raises(http.client.HTTPException):
        client.call("PATCH", "/people/1", {})
    told = [(entry.asked.method, entry.verb, entry.status, entry.changed) for entry in client.remote.log]
    assert told == [
        ("POST", "plainly", 201, True),
        ("GET", "plainly", 200, False),
        ("PATCH", "store_then_close", None, True),
    ]


def test_nonsense_is_not_a_request(open_remote: Open) -> None:
    """A peer that does not speak HTTP is cut off, and the next one is served."""
    client = open_remote()
    with socket.create_connection(("127.0.0.1", client.remote.port), timeout=5) as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        assert sock.recv(100) == b""
    assert client.post({})[0] == 201


def test_waiting_in_vain_is_told(open_remote: Open) -> None:
    """What never comes is not waited for without end."""
    assert not open_remote().remote.wait_until(lambda: False, seconds=0.01)


def test_closing_ends_what_is_still_hanging(open_remote: Open) -> None:
    """A remote that is closed leaves no socket and no thread behind, whatever its script."""
    remote = FaultyRemote().start()
    remote.next(hang())
    with socket.create_connection(("127.0.0.1", remote.port), timeout=5) as sock:
        sock.sendall(b"GET /people HTTP/1.1\r\nHost: x\r\n\r\n")
        assert remote.wait_until(lambda: len(remote.log) == 1)
        remote.close()
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    remote.close()
    assert "faulty-remote" not in {thread.name for thread in threading.enumerate()}


def test_copies_are_handed_out() -> None:
    """What a test does to a record it was given changes nothing at the remote."""
    api = Collections()
    api.handle(Asked(number=1, method="POST", target="/people", headers=(), body=b'{"tags": ["a"]}'))
    api.records[0].document["tags"].append("b")
    api.created[0].document["tags"].append("c")
    assert api.record("people", 1).document == {"tags": ["a"], "id": 1}
