"""The page at / in Chromium, if there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import Live, running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    opened = browser.new_page()
    faults: list[str] = []
    asked: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.asked = asked
    yield opened
    opened.close()
    assert faults == []


def say(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")
    playwright.expect(page.locator("#send")).to_have_text("Send", timeout=60_000)


def test_a_chat(live: Live, page: Any) -> None:
    page.goto(live.address)
    playwright.expect(page.locator("#model")).to_have_text("nano")
    say(page, "Hello <b>there</b>")
    assert page.locator(".user").inner_text() == "Hello <b>there</b>"
    first = page.locator(".assistant > div").first
    assert first.inner_text().strip()
    assert page.locator("details").first.is_visible()
    assert "answered in" in page.locator("#status").inner_text()
    page.uncheck("#think")
    say(page, "What is 3 plus 4?")
    assert "7" in page.locator(".assistant").last.inner_text()
    assert page.evaluate("messages.length") == 4
    page.click("#clear")
    assert page.locator(".turn").count() == 0
    assert all(url.startswith(live.address) for url in page.asked), "nothing comes from elsewhere"


def test_an_error_is_shown(live: Live, page: Any) -> None:
    page.goto(live.address)
    playwright.expect(page.locator("#model")).to_have_text("nano")
    say(page, "word " * 6000)
    assert "context" in page.locator(".error").inner_text()
    assert page.evaluate("messages.length") == 0


def test_a_key_is_asked_for(nano: Path, tmp_path: Path, page: Any) -> None:
    with running(nano, tmp_path, "--api-key", "secret") as server:
        page.on("dialog", lambda dialog: dialog.accept("secret"))
        page.goto(server.address)
        playwright.expect(page.locator("#model")).to_have_text("nano")
        say(page, "Hello")
        assert page.locator(".assistant").inner_text().strip()
        page.goto("about:blank")
