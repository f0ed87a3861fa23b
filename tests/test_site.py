"""End to end, as a reader has it: train at smoke size, execute, build, open in a browser without a network.

Needs Chromium; CHROMIUM names another executable than the one on the path.
"""

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from heads_for_depth.paths import ROOT

QUIET_CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--no-default-browser-check",
    "--disable-features=OptimizationHints,MediaRouter,Translate,DialMediaRouteProvider",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
CONTENTS = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())
CHAPTERS = [chapter["file"] for part in CONTENTS["parts"] for chapter in part["chapters"]]
PAGES = [f"{page}.html" for page in (CONTENTS["root"], *CHAPTERS)]
PATIENCE = 120_000
THEMES = ("light", "dark")

# Perceived contrast of the first paragraph's text against the page, as WCAG 2 defines it.
CONTRAST = """() => {
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const text = luminance(getComputedStyle(document.querySelector(".bd-article p")).color);
  const page = luminance(getComputedStyle(document.body).backgroundColor);
  return [(Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05), page];
}"""


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this repository in which the report was made at smoke size, with runs trained afresh."""
    root = tmp_path_factory.mktemp("repository")
    unmade = shutil.ignore_patterns("executed", "_generated", "__pycache__", "*.egg-info", ".ipynb_checkpoints")
    for folder in ("book", "notebooks", "src", "data"):
        shutil.copytree(ROOT / folder, root / folder, ignore=unmade)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, root)
    command = [sys.executable, "-c", "import sys; from heads_for_depth.cli import main; sys.exit(main())", "build"]
    command += ["--profile", "smoke", "--results", "fresh-results"]
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[max(run.stderr.rfind("Report failed"), 0) :]
    return root


@pytest.fixture(scope="session")
def site(repository: Path) -> Path:
    return repository / "_build" / "html"


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served on this machine."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Keep the output of the tests readable."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None or not Path(executable).exists():
        pytest.fail(
            f"Chromium is {executable or 'not installed'}: run `apt-get install chromium`, "
            "or set CHROMIUM to the path of a Chromium or Chrome executable"
        )
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=QUIET_CHROMIUM, timeout=PATIENCE)
        yield chromium
        chromium.close()


@contextmanager
def opened(browser: Browser, width: int = 1280, theme: str = "light") -> Iterator[Page]:
    """An empty page in a window of that width whose reader prefers that theme."""
    viewport = ViewportSize(width=width, height=900)
    context = browser.new_context(viewport=viewport, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    yield page
    context.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as page:
        yield page


def read(page: Page, url: str) -> None:
    """Open a page and wait until its formulas are typeset."""
    page.goto(url)
    page.wait_for_load_state("networkidle")
    page.evaluate("() => window.MathJax?.startup?.promise ?? null")


def passports(site: Path) -> list[tuple[str, str]]:
    """Kind and slug of everything the notebooks published."""
    files = sorted((site / "figures").glob("*.svg")) + sorted((site / "tables").glob("*.csv"))
    return [(file.parent.name, file.stem) for file in files]


@pytest.mark.parametrize("name", PAGES)
def test_reading_a_page_asks_no_other_host_and_logs_no_error(page: Page, address: str, name: str):
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("requestfailed", lambda request: errors.append(f"failed: {request.url}"))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    read(page, f"{address}/{name}")
    elsewhere = [url for url in requests if not url.startswith((address, "data:", "blob:"))]
    assert (elsewhere, errors) == ([], [])


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_a_phone(browser: Browser, address: str, name: str, theme: str):
    with opened(browser, width=390, theme=theme) as page:
        read(page, f"{address}/{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_out_in_both_themes(browser: Browser, address: str, theme: str):
    with opened(browser, theme=theme) as page:
        read(page, f"{address}/index.html")
        contrast, background = page.evaluate(CONTRAST)
    assert contrast >= 7
    assert (background < 0.1) == (theme == "dark")


def test_formulas_are_typeset_over_http_and_from_the_disk(page: Page, address: str, site: Path):
    for place in (address, site.as_uri()):
        read(page, f"{place}/claim.html")
        assert page.locator("mjx-container").count() > 0
        assert page.locator("mjx-merror").count() == 0
        fonts = page.evaluate("[...document.fonts].filter(font => font.status === 'loaded').map(font => font.family)")
        assert any("MJXTEX" in font for font in fonts)


def test_no_formula_of_any_page_has_an_error(page: Page, address: str):
    for name in PAGES:
        read(page, f"{address}/{name}")
        assert (name, page.locator("mjx-merror").count()) == (name, 0)


def test_everything_published_is_on_a_page_numbered_under_its_own_anchor(page: Page, address: str, site: Path):
    expected = passports(site)
    found = []
    for name in PAGES:
        read(page, f"{address}/{name}")
        for kind, slug in expected:
            numbers = page.locator(f"#{slug} .caption-number").all_inner_texts()
            found += [(kind, slug) for number in numbers if re.match(rf"{kind[:-1].title()} \d+", number)]
    assert expected
    assert sorted(found) == sorted(expected)


def test_everything_published_can_be_downloaded_from_its_page(page: Page, address: str, site: Path):
    beginnings = {"svg": b"<?xml", "pdf": b"%PDF", "csv": b""}
    linked = set()
    for name in PAGES:
        page.goto(f"{address}/{name}")
        for link in page.locator("a.site-file").all():
            url = link.evaluate("element => element.href")
            response = page.request.get(url)
            assert response.ok, url
            assert response.body().startswith(beginnings[url.rsplit(".")[-1]])
            linked.add(urlsplit(url).path.lstrip("/"))
    suffixes = {"figures": ("svg", "pdf", "csv"), "tables": ("csv",)}
    assert linked == {f"{kind}/{slug}.{suffix}" for kind, slug in passports(site) for suffix in suffixes[kind]}


@pytest.mark.parametrize("name", PAGES)
def test_a_smoke_build_says_so_on_every_page(site: Path, name: str):
    assert "Smoke build." in (site / name).read_text("utf-8")


def test_no_glued_value_shows_its_quotes_or_its_key(site: Path):
    pasted = [re.findall(r'class="pasted-text">([^<]*)<', (site / name).read_text("utf-8")) for name in PAGES]
    values = [value for values in pasted for value in values]
    assert values
    assert [value for value in values if not value or value.strip("'\"") != value or "::" in value] == []


# --- report.js on a table of its own

TABLE = """<html><body class="bd-article"><table class="sortable">
<thead><tr><th><p>name</p></th><th><p>value</p></th></tr></thead>
<tbody>{rows}</tbody></table></body></html>"""


def sortable_page(page: Page, values: list[str]) -> None:
    rows = "".join(f"<tr><td>row {number}</td><td>{value}</td></tr>" for number, value in enumerate(values))
    page.set_content(TABLE.format(rows=rows))
    page.add_script_tag(path=str(ROOT / "book" / "_static" / "report.js"))
    page.evaluate("document.dispatchEvent(new Event('DOMContentLoaded'))")


def column(page: Page) -> list[str]:
    return page.locator("tbody tr:visible td:nth-child(2)").all_inner_texts()


@pytest.mark.parametrize(
    ("values", "ascending"),
    [
        (["10", "9", "−3", "1,200", "inf", "—"], ["−3", "9", "10", "1,200", "inf", "—"]),
        (["[−0.1, 0.4]", "[−0.9, 0.1]", "[0.2, 0.3]"], ["[−0.9, 0.1]", "[−0.1, 0.4]", "[0.2, 0.3]"]),
        (["24 → 12", "9 → 8", "12 → 8"], ["9 → 8", "12 → 8", "24 → 12"]),
        (["within 1 %", "recounts", "contradicts"], ["contradicts", "recounts", "within 1 %"]),
        (["1.5e5", "2e3", "−1e9"], ["−1e9", "2e3", "1.5e5"]),
    ],
    ids=["numbers", "intervals", "changes", "words", "powers"],
)
def test_a_click_on_a_heading_sorts_the_table_by_that_column(page: Page, values: list[str], ascending: list[str]):
    sortable_page(page, values)
    heading = page.locator("th").nth(1)
    heading.get_by_role("button").click()
    assert (column(page), heading.get_attribute("aria-sort")) == (ascending, "ascending")
    heading.get_by_role("button").click()
    assert (column(page)[-1], heading.get_attribute("aria-sort")) == (ascending[0], "descending")


def test_a_long_table_can_be_filtered_by_a_word(page: Page):
    sortable_page(page, [*map(str, range(9)), "needle"])
    page.get_by_label("Filter rows").fill("Needle")
    assert column(page) == ["needle"]
    assert page.get_by_role("status").inner_text() == "1 of 10 rows"
