"""Make the whole report: execute the notebooks, build the book, say how long each took."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from heads_for_depth.paths import EXECUTED, GENERATED
from heads_for_depth.report.book import build_book
from heads_for_depth.report.notebooks import Announce, execute_all, planned
from heads_for_depth.report.parameters import ReportParameters


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeReport:
    """Where the site is and what it took."""

    site: Path
    """Folder of the built site; its first page is index.html."""
    execute_seconds: float
    """Wall-clock seconds of the notebooks."""
    build_seconds: float
    """Wall-clock seconds of the book, with the check of the built site."""


def make_report(parameters: ReportParameters, announce: Announce, *, reuse: bool = False) -> MadeReport:
    """Execute every notebook and build the site from empty folders; with reuse, keep what is current.

    Raises ReportFailed when a notebook, the book or a link of the site is at fault.
    """
    notebooks = planned()
    if not reuse:
        shutil.rmtree(EXECUTED, ignore_errors=True)
        shutil.rmtree(GENERATED, ignore_errors=True)
    started = time.monotonic()
    execute_all(notebooks, parameters, announce, reuse=reuse)
    executed = time.monotonic()
    announce("book: building and checking the site")
    site = build_book(parameters.profile)
    built = time.monotonic()
    announce(f"book: done in {built - executed:.0f} s")
    return MadeReport(site=site, execute_seconds=executed - started, build_seconds=built - executed)
