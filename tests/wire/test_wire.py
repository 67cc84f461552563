from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlink.adapters.wire import (
    READ_MULTIPLE,
    BodyKeeper,
    RequestRefused,
    check_request,
    decode_body,
    headers_in_bounds,
    is_framed,
    keep_headers,
)

BOUND = 65_536
LENGTH = (b"Content-Length", b"2")
CHUNKED = (b"Transfer-Encoding", b"chunked")


@pytest.mark.parametrize(
    ("status", "method", "headers", "framed"),
    [
        (200, "POST", [LENGTH], True),
        (200, "POST", [CHUNKED], True),
        (200, "POST", [(b"transfer-encoding", b" Chunked ")], True),
        (200, "POST", [], False),
        (200, "POST", [LENGTH, CHUNKED], False),
        (200, "POST", [LENGTH, LENGTH], True),
        (200, "POST", [LENGTH, (b"content-length", b"3")], False),
        (200, "POST", [(b"Transfer-Encoding", b"gzip, chunked")], False),
        (200, "POST", [(b"Transfer-Encoding", b"identity")], False),
        (204, "POST", [], True),
        (304, "GET", [], True),
        (200, "HEAD", [], True),
    ],
)
def test_a_body_has_an_end_only_where_its_framing_gives_one(
    status: int, method: str, headers: list[tuple[bytes, bytes]], framed: bool
) -> None:
    """A length or chunks, not both and not neither; or a status without a body."""
    assert is_framed(status, method, headers) is framed


@given(st.binary(max_size=2_000), st.sampled_from(["gzip", "x-gzip", "GZIP", "deflate", "raw deflate"]))
def test_an_encoded_body_comes_back_as_it_was(body: bytes, coding: str) -> None:
    """What can be undone is undone exactly."""
    if coding == "raw deflate":
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        # Without the wrapper a first byte may look like one; servers that leave it out send a dynamic or fixed block.
        packed, coding = packer.compress(body) + packer.flush(), "deflate"
        if packed[0] & 0x0F == zlib.DEFLATED:
            return
    else:
        packed = zlib.compress(body) if coding == "deflate" else gzip.compress(body)
    decoded = decode_body(packed, [coding], BOUND)
    assert (decoded.body, decoded.problem) == (body, "")


@given(st.binary(max_size=500), st.lists(st.text(max_size=12), max_size=3), st.integers(0, 100))
def test_no_body_makes_the_decoder_raise(body: bytes, codings: list[str], bound: int) -> None:
    """Whatever a remote sends and calls it, there is an answer within the bound, or the body as it came."""
    for names in (codings, ["gzip"], ["deflate"], ["gzip, br"]):
        decoded = decode_body(body, names, bound)
        assert len(decoded.body) <= max(bound, len(body))


@given(st.binary(min_size=30, max_size=300), st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_gzip_is_never_taken_for_a_whole_one(body: bytes, place: int, flip: int) -> None:
    """One changed byte behind the header shows, by the check sum if by nothing else."""
    packed = bytearray(gzip.compress(body, mtime=0))
    index = 10 + place % (len(packed) - 10)
    packed[index] ^= flip
    decoded = decode_body(bytes(packed), ["gzip"], BOUND)
    assert decoded.problem or decoded.body == body


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_costs_no_more_memory_than_its_bound(coding: str) -> None:
    """A hundred megabytes of zeros, packed a thousand to one, take a few times the bound to refuse."""
    zeros = b"\x00" * 100_000_000
    bomb = gzip.compress(zeros, 1) if coding == "gzip" else zlib.compress(zeros, 1)
    del zeros
    tracemalloc.start()
    decoded = decode_body(bomb, [coding], 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded.problem
    assert len(decoded.body) == 1_000_000
    assert peak < 8_000_000


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 200))
def test_a_body_is_hashed_as_far_as_it_is_read(chunks: list[bytes], bound: int) -> None:
    """The prefix is a prefix, the size is of everything, and reading stops at the multiple of the bound."""
    keeper, read = BodyKeeper(bound), b""
    for chunk in chunks:
        read += chunk
        if not keeper.add(chunk):
            break
    assert keeper.prefix == read[:bound]
    assert keeper.size == len(read)
    assert keeper.is_whole == (len(read) <= bound)
    assert len(read) <= bound * READ_MULTIPLE + 50


def test_only_listed_headers_of_a_reply_are_kept() -> None:
    """Names in lower case, nobody's credentials, order and repetition as they came."""
    raw = [
        (b"Content-Type", b"application/json"),
        (b"X-Unknown", b"1"),
        (b"SET-COOKIE", b"a=b"),
        (b"Location", "/\u00e9".encode()),
        (b"ETag", b'"\xe9"'),
        (b"X-RateLimit-Remaining", b" 3 "),
        (b"X-Remote-ID", b"7"),
        (b"X-Remote-Id", b"8"),
        (b"WWW-Authenticate", b'Digest realm="r", nonce="n"'),
        (b"Authorization", b"Bearer x"),
    ]
    assert keep_headers(raw, ("X-Remote-Id", "Authorization", "set-cookie")) == (
        ("content-type", "application/json"),
        ("location", "/\u00e9"),
        ("etag", '"\u00e9"'),
        ("x-ratelimit-remaining", "3"),
        ("x-remote-id", "7"),
        ("x-remote-id", "8"),
        ("www-authenticate", "Digest"),
    )


def test_headers_are_bounded_in_number_and_size() -> None:
    """A hundred headers and 64 kilobytes; more is no response that anybody reads."""
    assert headers_in_bounds([(b"a", b"b")] * 100)
    assert not headers_in_bounds([(b"a", b"b")] * 101)
    assert not headers_in_bounds([(b"a", b"b" * 8_000)] * 9)


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_header_that_is_let_through_can_break_a_line(name: str, value: str) -> None:
    """Either a header is refused, or its line is one line of visible ASCII with one name."""
    try:
        check_request("POST", [(name, value)])
    except RequestRefused:
        return
    line = f"{name}: {value}"
    assert line.isascii()
    assert line.isprintable() or "\t" in line
    assert len(line.splitlines()) == 1
    assert " " not in name


@pytest.mark.parametrize("method", ["", "post", "PO ST", "GET\r\nX: y", "G\u00c9T"])
def test_a_method_is_a_token(method: str) -> None:
    """The request line has no place for anything else."""
    with pytest.raises(RequestRefused):
        check_request(method, [])


def test_a_header_twice_is_refused() -> None:
    """Two values of one name are read differently by different servers."""
    with pytest.raises(RequestRefused, match="x-a"):
        check_request("POST", [("X-A", "1"), ("x-a", "2")])
