"""The page of las demo_app in a headless Chromium, served by a real process, on a machine that may have no network.

Playwright drives the browser: it reports requests, failures and errors of the page, feeds a microphone, and takes the
Chromium of the system. Both libraries are installed for this test only: `make browser`.
"""

import importlib
import importlib.util
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browsers import BROWSERS
from console import Las
from demo_page import LIMIT_S, Served, serve
from tiny import wav
from tiny_words import streaming, tree
from tiny_words import wav as recorded

from las.cli import train

PROGRAM = next((found for name in BROWSERS if (found := shutil.which(name))), None)
MISSING = [name for name in ("gradio", "playwright") if importlib.util.find_spec(name) is None]
MISSING += ["Chromium"] if PROGRAM is None else []
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} missing: `make browser` installs the libraries"),
]

HERE = ("127.0.0.1", "localhost", "::1")


@pytest.fixture(scope="module")
def served(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(trained / "run", tmp_path_factory.mktemp("served"), "max_upload_mb=2") as found:
        yield found


class Visit:
    """The page in a browser of a size and a colour scheme, and what went wrong there."""

    def __init__(self, browser: Any, url: str, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * LIMIT_S)
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("requestfailed", self.failed)
        self.page.on("response", self.answered)
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.goto(url)
        self.button.wait_for()

    def failed(self, request: Any) -> None:
        """The page itself hangs up on the stream of results once it has them."""
        if not ("/queue/data?" in request.url and request.failure == "net::ERR_ABORTED"):
            self.wrong.append(f"{request.url}: {request.failure}")

    def answered(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.url}: {response.status}")

    @property
    def button(self) -> Any:
        return self.page.get_by_role("button", name="Transcribe")

    def clear(self) -> None:
        """Take the recording away, if there is one."""
        found = self.page.get_by_label("Clear")
        if found.count():
            found.first.click()
            found.first.wait_for(state="detached")

    def upload(self, path: Path) -> None:
        """Choose a file, and wait until it has arrived."""
        self.clear()
        self.page.locator("input[type=file]").first.set_input_files(path)
        self.page.get_by_label("Play", exact=True).wait_for()

    def transcribe(self) -> str:
        """Press the button; what stands under the text, once it has changed."""
        before = self.status()
        self.button.click()
        self.page.wait_for_function(
            "before => (document.querySelector('p.heard') ?? {}).innerText != before", arg=before
        )
        return self.status()

    def status(self) -> str | None:
        found = self.page.locator("p.heard")
        return found.inner_text() if found.count() else None

    @property
    def text(self) -> str:
        return str(self.page.get_by_placeholder("The transcription appears here.").input_value())


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with importlib.import_module("playwright.sync_api").sync_playwright() as found:
        yield found


@contextmanager
def chromium(driver: Any, heard: Path) -> Iterator[Any]:
    """A browser that finds no address but this machine's, and whose microphone hears a file again and again."""
    options = [
        "--no-sandbox",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={heard}",
    ]
    launched = driver.chromium.launch(executable_path=PROGRAM, args=options, timeout=1000 * LIMIT_S)
    try:
        yield launched
    finally:
        launched.close()


@pytest.fixture(scope="module")
def browser(driver: Any, trained: Path) -> Iterator[Any]:
    with chromium(driver, wav(trained, "mdab0_sx1")) as found:
        yield found


@pytest.fixture(scope="module")
def visit(served: Served, browser: Any) -> Visit:
    return Visit(browser, served.url)


def test_a_file_is_heard_as_transcribe_hears_it(visit: Visit, trained: Path, tmp_path: Path, las: Las) -> None:
    path = wav(trained, "mdab0_sx1")
    las("transcribe", f"checkpoint={trained / 'run'}", f"input={path}", f"output={tmp_path / 'x.jsonl'}").succeeds()
    expected = json.loads((tmp_path / "x.jsonl").read_text())
    visit.upload(path)
    status = visit.transcribe()
    assert status.startswith(f"{expected['duration_s']:.2f} s of audio in ") and "real-time factor" in status
    assert visit.text == expected["text"]
    rows = [row.locator("td").all_inner_texts() for row in visit.page.locator(".heard tbody tr").all()]
    named = [[token["symbol"], f"{token['start_s']:.2f}", f"{token['end_s']:.2f}"] for token in expected["tokens"]]
    assert [row[:3] for row in rows] == named
    for row, token in zip(rows, expected["tokens"], strict=True):
        assert float(row[3].rstrip("%")) == pytest.approx(100 * token["confidence"], abs=0.06)  # both are rounded
    picture = visit.page.locator(".heard img")
    assert picture.count() == 1 and picture.bounding_box()["width"] > 200
    assert visit.wrong == []


def test_the_example_is_heard(visit: Visit) -> None:
    visit.clear()
    visit.page.get_by_role("button", name="sil aa iy sil").click()
    visit.page.get_by_label("Play", exact=True).wait_for()
    assert "real-time factor" in visit.transcribe()
    assert visit.wrong == []


def test_the_microphone_is_heard(visit: Visit) -> None:
    visit.clear()
    visit.page.get_by_label("Record audio").click()
    visit.page.get_by_role("button", name="Record", exact=True).click()
    visit.page.wait_for_timeout(1500)
    visit.page.get_by_role("button", name="Stop", exact=True).click()
    visit.page.get_by_label("Play", exact=True).wait_for()
    assert "real-time factor" in visit.transcribe()
    assert visit.wrong == []


def test_speech_is_heard_piece_by_piece(driver: Any, tmp_path: Path) -> None:
    """The page of a model that does not wait has a second tab; what it shows is tested in test_demo_app_live.py."""
    root = tree(tmp_path)
    train.train(streaming(root))
    with serve(root / "run", root, "search=greedy") as served, chromium(driver, recorded(root, "faaa_0")) as browser:
        visit = Visit(browser, served.url)
        visit.page.get_by_role("tab", name="While you speak").click()
        visit.page.get_by_role("button", name="Record", exact=True).last.click()
        visit.page.wait_for_function("parseFloat(document.querySelector('p.heard.live + p')?.innerText) > 1.5")
        visit.page.get_by_role("button", name="Stop", exact=True).click()
        visit.page.get_by_role("button", name="Record", exact=True).last.wait_for()
        assert visit.page.locator("p.problem").count() == 0
        assert visit.wrong == [] and (root / "err").read_text() == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_laptop_and_a_phone_show_all_of_it(
    served: Served, browser: Any, trained: Path, width: int, scheme: str
) -> None:
    visit = Visit(browser, served.url, width, scheme)
    visit.upload(wav(trained, "mdab0_sx1"))
    visit.transcribe()
    for part in (".heard table", ".heard img"):
        box = visit.page.locator(part).bounding_box()
        assert box["x"] >= 0 and 200 < box["width"] <= width - box["x"]
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shade = visit.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(shade) > 128) == (scheme == "light")
    assert visit.wrong == []
    visit.context.close()


def test_nothing_is_asked_of_another_machine(served: Served, visit: Visit) -> None:
    """The last test: of the browser, and of the server, which leaves nothing behind and has printed one address."""
    assert len(visit.asked) > 10
    assert [url for url in visit.asked if not url.startswith((f"{served.url}/", "data:", "blob:"))] == []
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(LIMIT_S) == 0
    assert served.asked and [where for where in served.asked if where is not None and where not in HERE] == []
    assert (served.folder / "err").read_text() == ""
    said = (served.folder / "out").read_text().splitlines()
    assert len(said) == 2 and f"{served.url}/ " in said[0] and said[1] == "ended"
    assert served.kept == []
