"""The pages' files over HTTP: compressed, checked again each time, isolated, and without inline code."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2

from app.config import ROOT
from tests.app.serving import serving


async def test_text_is_compressed_and_webassembly_is_not(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.js").write_text("export const a = 1;\n" * 500)
    (pages / "a.wasm").write_bytes(b"\0asm" * 500)
    async with serving(tmp_path, static_dir=pages) as gateway, httpx2.AsyncClient() as client:
        text = await client.get(f"{gateway.url}/a.js")
        assert text.headers["content-encoding"] == "gzip"
        assert text.text == (pages / "a.js").read_text()
        again = await client.get(f"{gateway.url}/a.js", headers={"If-None-Match": text.headers["etag"]})
        assert again.status_code == 304
        code = await client.get(f"{gateway.url}/a.wasm")
        assert "content-encoding" not in code.headers
        assert code.headers["content-type"] == "application/wasm"


async def test_every_page_is_isolated_and_may_run_only_its_own_files(tmp_path: Path) -> None:
    async with serving(tmp_path) as gateway, httpx2.AsyncClient() as client:
        for address in ("/", "/ops", "/js/page.js"):
            headers = (await client.get(gateway.url + address)).headers
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
            assert policy["connect-src"] == "'self'"
            assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
            assert "unsafe-inline" not in headers["content-security-policy"]
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["cross-origin-embedder-policy"] == "require-corp"


def test_no_page_has_inline_code_or_style_and_no_module_makes_markup_of_text() -> None:
    for page in (ROOT / "static").glob("*.html"):
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", page.read_text()), page
    for module in (ROOT / "static/js").rglob("*.js"):
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
        assert not re.search(forbidden, module.read_text()), module
