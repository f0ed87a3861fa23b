"""Serve MathJax from the site itself, so that formulas need no network."""

from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.fileutil import copy_asset
from sphinx.util.typing import ExtensionMetadata

# The script, the TeX extensions that it loads on demand and its fonts: 2 MB of the package's 24.
PARTS = ("tex-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2")


def copy_mathjax(app: Sphinx, failure: Exception | None) -> None:
    """Copy the parts of MathJax that reading needs into the built site."""
    if failure is not None or app.builder.format != "html":
        return
    package = find_spec("sphinx-mathjax-offline")
    if package is None or package.origin is None:
        raise RuntimeError("sphinx-mathjax-offline is not installed: run `pip install -r requirements.lock`")
    source = Path(package.origin).parent / "static" / "mathjax"
    for part in PARTS:
        target = Path(app.outdir, "_static", "mathjax", part)
        copy_asset(source / part, target.parent if (source / part).is_file() else target)


def setup(app: Sphinx) -> ExtensionMetadata:
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    app.connect("build-finished", copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
