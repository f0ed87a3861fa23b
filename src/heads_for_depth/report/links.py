"""Check a built site: every internal link and anchor leads somewhere, and nothing is loaded from elsewhere."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag

ADDRESS_ATTRIBUTES = ("href", "src", "data", "poster")
NOT_FETCHED = ("data:", "mailto:", "javascript:")
EXTERNAL_IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s;]+)")


def site_problems(site: Path) -> list[str]:
    """Sentences about a built site: missing files, missing anchors, duplicate ids, loads from other hosts."""
    pages = {
        page: BeautifulSoup(page.read_text("utf-8"), "html.parser")
        for page in sorted(site.rglob("*.html"))
        if "_static" not in page.relative_to(site).parts
    }
    anchors = {page: _anchors(soup) for page, soup in pages.items()}
    problems = [] if pages else [f"{site.name}: holds no page"]
    for page, soup in pages.items():
        name = page.relative_to(site).as_posix()
        problems += [f"{name}: the id {anchor!r} is given {count} times" for anchor, count in _repeated_ids(soup)]
        problems += [f"{name}: {problem}" for problem in _broken_addresses(page, soup, anchors)]
    return problems + list(_external_styles(site))


def _anchors(soup: BeautifulSoup) -> set[str]:
    named = {str(tag["name"]) for tag in soup.find_all("a", attrs={"name": True})}
    return named | {str(tag["id"]) for tag in soup.find_all(id=True)}


def _repeated_ids(soup: BeautifulSoup) -> list[tuple[str, int]]:
    counts = Counter(str(tag["id"]) for tag in soup.find_all(id=True))
    return [(anchor, count) for anchor, count in counts.items() if count > 1]


def _broken_addresses(page: Path, soup: BeautifulSoup, anchors: dict[Path, set[str]]) -> Iterator[str]:
    for tag in soup.find_all(True):
        for attribute in ADDRESS_ATTRIBUTES:
            address = tag.get(attribute)
            if isinstance(address, str) and address and not address.startswith(NOT_FETCHED):
                yield from _address_problem(page, tag, address, anchors)


def _address_problem(page: Path, tag: Tag, address: str, anchors: dict[Path, set[str]]) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        if tag.name != "a" and "canonical" not in (tag.get("rel") or ()):
            yield f"<{tag.name}> loads {address} from another host"
        return
    target = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        yield f"<{tag.name}> leads to {address}, which does not exist"
    elif parts.fragment and target in anchors and unquote(parts.fragment) not in anchors[target]:
        yield f"<{tag.name}> leads to {address}, which has no such anchor"


def _external_styles(site: Path) -> Iterator[str]:
    for sheet in sorted(site.rglob("*.css")):
        for address in EXTERNAL_IN_STYLES.findall(sheet.read_text("utf-8")):
            yield f"{sheet.relative_to(site).as_posix()}: the style sheet loads {address} from another host"
