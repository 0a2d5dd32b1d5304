"""The page's files: types, policy, caching, and that they are open."""

from __future__ import annotations

import re

import pytest

from slipstream.server.routes.page import PAGE_FILES, PAGE_FOLDER
from support.http_world import run, world


def fetch(path, method="GET", headers=None, **app):
    async def body():
        async with world(**app) as here:
            return await here.client.request(method, path, headers=headers)

    return run(body)


@pytest.mark.parametrize("path", PAGE_FILES)
def test_every_file_is_served_with_its_type_and_policy(path):
    name, content_type = PAGE_FILES[path]
    answer = fetch(path, api_keys=("secret",))
    assert answer.status_code == 200
    assert answer.content == (PAGE_FOLDER / name).read_bytes()
    assert answer.headers["content-type"] == content_type
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert set(policy.values()) <= {"'none'", "'self'"}


def test_every_file_of_the_folder_has_a_path():
    assert {path.name for path in PAGE_FOLDER.iterdir()} == {name for name, _ in PAGE_FILES.values()}


def test_a_file_that_is_known_is_not_sent_again():
    tag = fetch("/").headers["etag"]
    again = fetch("/", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert fetch("/", headers={"If-None-Match": '"other"'}).status_code == 200
    assert fetch("/static/page.js").headers["etag"] != tag


def test_other_methods_and_other_files_are_not_served():
    assert fetch("/", "HEAD").status_code == 200
    assert fetch("/", "POST").status_code == 405
    for path in ("/static/index.html", "/static/../app.py", "/static/%2e%2e/app.py", "/static/"):
        assert fetch(path).status_code == 404


def test_nothing_is_loaded_from_elsewhere_and_no_script_or_style_is_inline():
    html = (PAGE_FOLDER / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:src|href)="([^"]+)"', html)) <= set(PAGE_FILES)
    assert re.findall(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", html) == []
    for file in PAGE_FOLDER.glob("*.[cj]s*"):
        text = file.read_text(encoding="utf-8")
        assert (
            re.findall(r"https?:|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage", text)
            == []
        )
