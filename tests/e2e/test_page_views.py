"""The page's other views, what hostile output can't do, and what it all weighs: a real browser, a scripted target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.serving import Steps
from tests.e2e.gateway import Gateway
from tests.e2e.test_page import ANSWER, CHROMIUM, CUT_SOCKETS, VERSES, Recital, ask, opened, text_of

pytest.importorskip("playwright", reason="playwright drives the browser, and is not installed")
from playwright.async_api import Page, Response, expect

ROOT = Path(__file__).parents[2]
AXE = ROOT / "node_modules/axe-core/axe.min.js"
VENDOR = ROOT / "static/vendor/marked/index.js"
MOST_BYTES = 300_000
"""The page's own weight, libraries included, before the model and what runs it."""
MARKDOWN = (
    "# A title\n\nSome **bold** words and `code`.\n\n- one\n- two\n\n"
    "```python\ndef area(w, h):\n    return w * h\n```\n"
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the browser `chromium` is not installed")
needs_vendor = pytest.mark.skipif(not VENDOR.is_file(), reason="the page's libraries are not here: make page")


async def test_a_race_ends_with_the_same_text_three_times(tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital(VERSES), step_s=0.02) as gateway,
        opened(gateway, f"#key={gateway.key}") as page,
    ):
        await page.click("[data-view=race]")
        await ask(page, "one rider leads and two follow.")
        await expect(page.locator(".verdict")).to_have_attribute("data-same", "true")
        texts = page.locator(".lane-text")
        for lane in range(3):  # they are played once more, at their own pace
            await expect(texts.nth(lane)).to_have_text(VERSES)
        steps = [await facts.inner_text() for facts in await page.locator(".facts div:nth-child(2) dd").all()]
        cloud, _, hybrid = (int(text.split()[0]) for text in steps)
        assert hybrid < cloud
        async with page.expect_download() as saved:
            await page.click("text=Save as PNG")
        assert (await (await saved.value).path()).read_bytes().startswith(b"\x89PNG")


async def test_the_record_shows_every_frame_and_the_text_it_decodes_to(tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital(VERSES), step_s=0.005) as gateway,
        opened(gateway, f"#key={gateway.key}") as page,
    ):
        sent: list[str] = []
        page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(str(frame))))
        await page.reload()
        await ask(page, "one rider leads and two follow.")
        await page.wait_for_selector(ANSWER)
        await page.click("[data-view=left]")
        entry = page.locator(".left").first
        await expect(entry).to_contain_text("one rider leads and two follow.")
        frames = [frame for frame in sent if frame.startswith(('["open"', '["draft"'))]
        bytes_up = sum(len(frame.encode()) for frame in frames)
        shown = [int(await cell.inner_text()) for cell in await entry.locator("td:last-child").all()]
        assert sum(shown) == bytes_up
        assert "rider" in await entry.locator("pre").last.inner_text()


async def test_redacted_data_stays_here_and_stands_in_the_answer(tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital("Dear [EMAIL_1], hello."), step_s=0.002) as gateway,
        opened(gateway, f"#key={gateway.key}") as page,
    ):
        sent: list[str] = []
        page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(str(frame))))
        await page.reload()
        await page.click("#settings-button")
        await page.select_option("#privacy", "redacted")
        await ask(page, "Write to ann@example.org")
        await page.wait_for_selector(ANSWER)
        assert await text_of(page) == "Dear ann@example.org, hello."
        assert any("[EMAIL_1]" in frame for frame in sent)
        assert not any("ann@" in frame for frame in sent)


async def test_a_reload_goes_on_with_the_answer(tmp_path: Path) -> None:
    long = VERSES * 3
    async with (
        Gateway(tmp_path, Recital(long), step_s=0.03) as gateway,
        opened(gateway, f"#key={gateway.key}") as page,
    ):
        await page.click("#settings-button")
        await page.select_option("#length", "512")
        await ask(page, "a question that holds none of the answer")
        await expect(page.locator(".text [data-origin]").nth(8)).to_be_attached()
        await page.reload()
        await page.wait_for_selector(ANSWER)
        assert await text_of(page) == long
        assert gateway.engine.load().running == 0
        # And the conversation is there after another reload, without any stream.
        await page.reload()
        assert await text_of(page) == long


@pytest.mark.parametrize("closing", [False, True], ids=["silent", "closing"])
async def test_offline_and_back_goes_on_with_the_answer(closing: bool, tmp_path: Path) -> None:
    """Nothing passes the socket while the browser is offline. Where it is being closed at that time, Chromium may never
    tell of it: the close frame waits, and so does the event.
    """
    long = VERSES * 3
    steps = Steps()
    steps.allow(20)
    async with (
        Gateway(tmp_path, Recital(long), step_s=0.01, sleep=steps.wait) as gateway,
        opened(gateway) as page,
    ):
        await page.add_init_script(CUT_SOCKETS)
        await page.goto(f"{gateway.url}/?again#key={gateway.key}")
        await page.click("#settings-button")
        await page.select_option("#length", "512")
        await ask(page, "a question that holds none of the answer")
        await expect(page.locator(".text [data-origin]").nth(8)).to_be_attached()
        await page.context.set_offline(True)
        if closing:
            await page.evaluate("window.sockets.at(-1).close()")
        await expect(page.locator(".answer[data-away]")).to_be_attached()
        await expect(page.locator("#connection")).to_have_attribute("data-state", "waiting")
        await page.context.set_offline(False)
        steps.run_free()
        await page.wait_for_selector(ANSWER)
        assert await text_of(page) == long


async def test_padded_messages_all_have_one_size_and_the_text_is_the_same(tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital(VERSES), step_s=0.02) as gateway,
        opened(gateway, f"#key={gateway.key}") as page,
    ):
        sent: list[str] = []
        heard: list[str] = []
        page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(str(frame))))
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: heard.append(str(frame))))
        await page.reload()
        await page.click("#settings-button")
        await page.select_option("#sizes", "padded")
        await expect(page.locator("#leaves")).to_contain_text("padded")
        sent.clear()  # the socket before this one was not padded
        heard.clear()
        await ask(page, "one rider leads and two follow.")
        await page.wait_for_selector(ANSWER)
        assert await text_of(page) == VERSES
        assert await page.locator('.text [data-origin="accepted"]').count() > 10
        padded = [frame for frame in [*sent, *heard] if not frame.startswith(('["hello"', '["welcome"'))]
        assert len(padded) > 20
        assert {frame[:6] for frame in padded} == {'["pad"'}
        assert {len(frame.encode()) % 512 for frame in padded} == {0}
        await page.click("[data-view=left]")
        amounts = page.locator(".left").first.locator("td:last-child")
        assert {int(amount) % 512 for amount in await amounts.all_inner_texts()} == {0}


@needs_vendor
async def test_markdown_is_laid_out_and_its_code_coloured(tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital(MARKDOWN), step_s=0.002) as gateway,
        opened(gateway, f"#key={gateway.key}") as page,
    ):
        await ask(page, "hello")
        await page.wait_for_selector(ANSWER)
        text = page.locator(".text")
        await expect(text.locator("h3")).to_have_text("A title")
        await expect(text.locator("strong")).to_have_text("bold")
        await expect(text.locator("li")).to_have_count(2)
        await expect(text.locator("pre code")).to_have_text("def area(w, h):\n    return w * h")
        await expect(text.locator("pre .hljs-keyword").first).to_have_text("def")
        assert await text.locator("pre [data-origin]").count() > 0


HOSTILE = {
    "markup": "<img src=x onerror=window.broken=1><script>window.broken=1</script><svg onload=window.broken=1>",
    "links": "[a](javascript:window.broken=1) ![b](https://evil.example/b.png) <https://evil.example> www.evil.example",
    "a style": '<style>*{display:none}</style><div style="position:fixed;inset:0">x</div>',
    "nesting": "> " * 4000 + "deep\n\n" + "- " * 2000 + "deep\n\n" + "*" * 5000 + "a" + "_" * 5000,
    "a fence": '```python"><script>window.broken=1</script>\n<b>x</b>\n```',
    "controls": "abc\u202edef\u0000\u001b[31m\u0007\u2066ghi",
    "a form": '<form action="https://evil.example"><input name=key><button>Go</button></form>',
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_output_does_nothing(name: str, tmp_path: Path) -> None:
    async with Gateway(tmp_path, Recital("x")) as gateway, opened(gateway) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        found = await _shown(page, HOSTILE[name])
        assert found["active"] == 0
        assert not found["broken"]
        assert not any(ord(character) < 32 and character not in "\n\t" for character in found["text"])
        assert "\u202e" not in found["text"]
        assert [url for url in asked if not url.startswith(gateway.url)] == []


async def test_a_line_of_ten_megabytes_is_cut_on_the_page_and_whole_in_memory(tmp_path: Path) -> None:
    async with Gateway(tmp_path, Recital("x")) as gateway, opened(gateway) as page:
        found = await _shown(page, "<b>*" * 2_500_000)
        assert found["active"] == 0
        assert len(found["text"]) <= 100_000
        assert found["held"] == 10_000_000
        await page.click("[data-view=race]")  # the page answers


async def _shown(page: Page, output: str) -> dict[str, Any]:
    """Put an output on the page as tokens would bring it, in pieces, and say what came of it."""
    found: dict[str, Any] = await page.evaluate(
        """async (output) => {
          const { AnswerView } = await import("/js/answer.js");
          const { markdownLexer } = await import("/js/libraries.js");
          await markdownLexer();
          const view = new AnswerView({ title: "", detail: "", announce() {}, onEnded() {} });
          document.getElementById("turns").append(view.element);
          const size = Math.max(7, Math.ceil(output.length / 200));
          for (let at = 0; at < output.length; at += size) {
            view.committed([{ text: output.slice(at, at + size), origin: "cloud" }]);
            if (at % (size * 20) === 0) await new Promise(requestAnimationFrame);
          }
          view.ended({ reason: "stop" });
          const text = view.element.querySelector(".text");
          const active = "a, img, script, svg, style, form, input, iframe, object, [onerror], [onload], [href], [src]";
          return { text: text.textContent, held: view.content.length, broken: window.broken !== undefined,
                   active: text.querySelectorAll(active).length };
        }""",
        output,
    )
    return found


@needs_vendor
async def test_the_page_weighs_less_than_300_kilobytes(tmp_path: Path) -> None:
    async with Gateway(tmp_path, Recital(MARKDOWN), step_s=0.002) as gateway, opened(gateway) as page:
        assert page.context.browser is not None
        fresh = await (await page.context.browser.new_context(viewport={"width": 1360, "height": 800})).new_page()
        weights: dict[str, int] = {}

        async def weigh(response: Response) -> None:
            path = response.url.removeprefix(gateway.url)
            if response.request.method == "GET" and "/v1/" not in path and "/wllama/" not in path:
                weights[path] = (await response.request.sizes())["responseBodySize"]

        fresh.on("response", weigh)
        await fresh.goto(f"{gateway.url}/#key={gateway.key}")
        await ask(fresh, "hello")
        await fresh.wait_for_selector(ANSWER)
        await expect(fresh.locator(".chart canvas")).to_have_count(4)
        await expect(fresh.locator(".hljs-keyword").first).to_be_attached()
        assert len(weights) > 30
        assert sum(weights.values()) < MOST_BYTES, weights


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: npm ci")
@pytest.mark.parametrize(("width", "theme"), [(1360, "light"), (390, "dark")])
async def test_axe_finds_nothing_serious_in_any_view(width: int, theme: str, tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital(MARKDOWN + VERSES), admin_key="ops") as gateway,
        opened(gateway, width=width) as page,
    ):
        await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        assert await _serious(page) == []
        await page.goto(f"{gateway.url}/?again#key={gateway.key}")
        await expect(page.locator("#suggestions")).to_be_visible()
        assert await _serious(page) == []
        await page.click("#settings-button")
        if width < 1000:
            await page.click("#bench")
        await ask(page, "one rider leads")
        await page.wait_for_selector(ANSWER)
        assert await _serious(page) == []
        await page.click("[data-view=left]")
        assert await _serious(page) == []
        await page.click("[data-view=race]")
        await ask(page, "one rider leads")
        await page.wait_for_selector(".verdict")
        assert await _serious(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == width
        await page.goto(f"{gateway.url}/ops#key=ops")
        await expect(page.locator("#tiles div").first).to_be_visible()
        await page.wait_for_timeout(300)
        assert await _serious(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == width


async def _serious(page: Page) -> list[str]:
    await page.evaluate(AXE.read_text())
    found: list[str] = await page.evaluate(
        """async () => (await axe.run()).violations.filter(({impact}) => ["serious", "critical"].includes(impact))
           .flatMap(({id, nodes}) => nodes.map(({target, failureSummary}) => `${id}: ${target} ${failureSummary}`))"""
    )
    return found


async def test_a_thousand_streams_fit_on_the_operators_page(tmp_path: Path) -> None:
    """Streams are squares on one canvas: a thousand give the page no more to lay out than ten."""
    async with Gateway(tmp_path, Recital("x"), admin_key="ops") as gateway, opened(gateway) as page:
        await page.goto(f"{gateway.url}/ops#key=ops")
        await expect(page.locator("#tiles div").first).to_be_visible()
        elements = await page.evaluate(
            """async () => {
              const { Board } = await import("/js/ops_board.js");
              const load = {running: 8, waiting: 9, context_used: 1, context_total: 2, step_ms: 30, last_step: [8, 30]};
              const stream = (_, i) => ({id: `s${i}`, tenant: `t${i % 40}`, kind: "device", prompt: 9,
                policy: "eager", length: i % 200, limit: 200, steps: 5, drafted: 9, verified: 8,
                accepted: i % 8, matched: 1});
              const picture = (count) => ({at: 0, load, streams: Array.from({length: count}, stream),
                streams_total: count, slots: 8, queue_limit: 9, tokens: {completion: 1}, failure: null, faults: [],
                replicas: [], model: "m"});
              const board = new Board((id) => document.getElementById(id));
              return [40, 1000].map((count) => {
                board.show(picture(count));
                return document.querySelectorAll("*").length;
              });
            }"""
        )
        assert elements[0] == elements[1]
        await expect(page.locator("#streams-count")).to_have_text("1000")
