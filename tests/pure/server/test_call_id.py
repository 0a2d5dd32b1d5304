"""A call is named by its client if the name is sane, else by us."""

from __future__ import annotations

import pytest
from fastapi import Request

from slipstream.server.call_id import MAX_ID_CHARS, call_of, choose_id, draw_id, name_call


def headers(*values: bytes):
    return [(b"host", b"x"), *((b"x-request-id", value) for value in values)]


@pytest.mark.parametrize(
    "given", [b"a", b"7", b"0f8fad5b-d9cb-469f-a165-70867728950e", b"trace:1/2+3=4@5_6.7", b"x" * MAX_ID_CHARS]
)
def test_a_sane_id_is_kept(given):
    assert choose_id(headers(given, b"second")) == given.decode()


@pytest.mark.parametrize(
    "given",
    [b"", b" ", b"a b", b"a\nb", b"a\r\nx: y", b'a"b', b"-a", b"a,b", b"\xff", "é".encode(), b"x" * (MAX_ID_CHARS + 1)],
)
def test_any_other_is_replaced(given):
    chosen = choose_id(headers(given))
    assert chosen.startswith("req-")
    assert chosen != choose_id(headers(given))


def test_without_one_it_is_drawn():
    assert choose_id([]) != choose_id([])
    assert choose_id([(b"x-request-id", draw_id().encode())]).startswith("req-")


def test_the_call_stays_with_the_request():
    scope = {"type": "http", "headers": headers(b"mine")}
    call = name_call(scope)
    assert call_of(Request(scope)) is call
    assert call.call_id == "mine"
    other = Request({"type": "http", "headers": headers(b"other")})
    assert call_of(other) is call_of(other)
    assert call_of(other).call_id == "other"
