"""Build the site from the chapters and the executed notebooks, always from scratch, and check it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from heads_for_depth.paths import BOOK, GENERATED, ROOT, SITE
from heads_for_depth.report import ReportFailed
from heads_for_depth.report.links import site_problems

CONFIG = ROOT / "_config.yml"
SMOKE_NOTICE = (
    "<strong>Smoke build.</strong> Sizes and budgets only prove that the pipeline runs; "
    "the numbers on these pages mean nothing scientifically."
)


def build_book(profile: str) -> Path:
    """Build the book with warnings as errors, check the site and return its folder.

    Raises ReportFailed with the warnings of the build or the problems of the site, one a line.
    """
    shutil.rmtree(SITE.parent, ignore_errors=True)
    (GENERATED / "site").mkdir(parents=True, exist_ok=True)
    config = SITE.parent / "_config.yml"
    config.parent.mkdir(parents=True)
    config.write_text(yaml.safe_dump(book_configuration(profile), sort_keys=False), encoding="utf-8")
    _run_jupyter_book(config)
    problems = site_problems(SITE)
    if problems:
        raise ReportFailed("the built site has problems:\n" + "\n".join(problems))
    return SITE


def book_configuration(profile: str) -> dict[str, Any]:
    """The configuration of the repository, with a notice on every page when the profile is smoke."""
    configuration: dict[str, Any] = yaml.safe_load(CONFIG.read_text("utf-8"))
    extensions = configuration["sphinx"]["local_extensions"]
    configuration["sphinx"]["local_extensions"] = {name: str(ROOT / folder) for name, folder in extensions.items()}
    if profile == "smoke":
        configuration["html"]["announcement"] = SMOKE_NOTICE
    return configuration


def _run_jupyter_book(config: Path) -> None:
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", str(BOOK), "--config", str(config)]
    command += ["-W", "-n", "--keep-going", "--all"]
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, text=True, capture_output=True, check=False
    )
    if run.returncode != 0:
        raise ReportFailed("the book did not build:\n" + _complaints(run.stdout + run.stderr))


def _complaints(log: str) -> str:
    lines = log.splitlines()
    telling = [line for line in lines if "WARNING" in line or "ERROR" in line or "CRITICAL" in line]
    return "\n".join(telling or lines[-30:])
