"""Publish a figure or a table: its files, its numbered place in the book and where it came from.

A notebook publishes; a markdown cell or a chapter shows the result with

    ```{include} /_generated/<slug>.md
    ```

The slug is the anchor on the page, the target of `{numref}` and the name of the files below the site's root
(`figures/<slug>.svg`, `.pdf`, `.csv`; `tables/<slug>.csv`), so that a citation survives a renumbering.
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from myst_nb import glue

from heads_for_depth.errors import BadInput
from heads_for_depth.paths import GENERATED
from heads_for_depth.provenance import commit
from heads_for_depth.tables.formatting import MISSING

SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NOT_DIGITS = re.compile(r"\binf\b|(?<=\d)[eE](?=[+−-]?\d)|(?<=\d) ?[kMG]$|" + MISSING)
DASH = "—"
NO_BREAK = "\N{NO-BREAK SPACE}"
SENTENCE = 48
"""Characters from which a cell of the last column is a sentence."""
SENTENCES = 100
"""Characters from which a cell of any other column needs as much room."""
MANY_COLUMNS = 8
"""Columns from which the gaps between them are narrow."""
SHORT_NAME = 20
"""Characters of a row's name that a phone's width still has room for beside a column of numbers."""


def publish_figure(
    figure: Figure,
    slug: str,
    title: str,
    caption: str,
    data: pd.DataFrame,
    *,
    profile: str | None = None,
    alt: str | None = None,
    folder: Path = GENERATED,
) -> None:
    """Write a figure as SVG and PDF, its data as CSV, and the fragment that shows it.

    Title and caption are Markdown; alt is what a reader who cannot see the figure is told (default: the title);
    profile is named as the origin. The same figure gives the same bytes. Closes the figure. Raises BadInput for a
    slug that cannot be an address.
    """
    files = _site_folder(slug, "figures", folder)
    for suffix in ("svg", "pdf"):
        (files / f"{slug}.{suffix}").write_bytes(_drawn(figure, suffix, slug))
    plt.close(figure)
    _write_csv(data, files / f"{slug}.csv")
    fragment = [
        f":::{{figure}} /_generated/site/figures/{slug}.svg",
        f":name: {slug}",
        f":alt: {_one_line(alt or title)}",
        ":figclass: passport",
        "",
        f"**{_one_line(title)}.** {_one_line(caption)}",
        "",
        _links("figures", slug, ("svg", "pdf", "csv"), profile),
        ":::",
    ]
    _write_fragment(fragment, slug, folder)


def publish_table(
    frame: pd.DataFrame,
    slug: str,
    title: str,
    caption: str,
    sortable: bool = False,
    *,
    profile: str | None = None,
    data: pd.DataFrame | None = None,
    folder: Path = GENERATED,
) -> None:
    """Write a table's CSV and the fragment that shows it, cells as they are.

    Title, caption, headings and cells are Markdown; named index levels become the first columns. Columns of numbers
    are aligned to the right. `data` holds unrounded values for the CSV where the cells are rounded (default: the
    frame). Raises BadInput for a slug that cannot be an address and for a frame without rows or columns.
    """
    if frame.empty:
        raise BadInput(f"table {slug}", "no rows or no columns", "publish a frame that holds at least one cell")
    files = _site_folder(slug, "tables", folder)
    _write_csv(frame if data is None else data, files / f"{slug}.csv")
    frame = _with_named_index(frame)
    fragment = [
        f":::{{table}} **{_one_line(title)}.** {_one_line(caption)}",
        f":name: {slug}",
        f":class: {' '.join(_table_classes(frame, sortable))}",
        "",
        *_pipe_table(frame),
        ":::",
        "",
        "{.passport-links}",
        _links("tables", slug, ("csv",), profile),
    ]
    _write_fragment(fragment, slug, folder)


def glue_values(values: Mapping[str, object]) -> None:
    """Make formatted numbers available to chapters as {glue:text}`executed/NN-question.ipynb::key`.

    Raises BadInput for a value that is not text yet, since rounding happens in `tables`, and for a key with a colon.
    """
    for key, text in values.items():
        if not isinstance(text, str):
            raise BadInput(f"glued value {key}", text, "format it as text first")
        if ":" in key:
            raise BadInput("glue key", key, "use a key without a colon, which the role takes for a format")
        glue(key, text, display=False)


def _site_folder(slug: str, kind: str, folder: Path) -> Path:
    if not SLUG.fullmatch(slug):
        raise BadInput("slug", slug, "use lower-case words joined by hyphens, such as kappa-per-head-count")
    files = folder / "site" / kind
    files.mkdir(parents=True, exist_ok=True)
    return files


def _drawn(figure: Figure, suffix: str, slug: str) -> bytes:
    """The figure as a file of that type, without a date or random ids."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": slug, "svg.fonttype": "path", "pdf.fonttype": 42}):
        figure.savefig(buffer, format=suffix, metadata=undated[suffix], bbox_inches="tight")
    return buffer.getvalue()


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    _with_named_index(frame).to_csv(path, index=False, lineterminator="\n", encoding="utf-8")


def _with_named_index(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.reset_index() if any(name is not None for name in frame.index.names) else frame


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _links(kind: str, slug: str, suffixes: tuple[str, ...], profile: str | None) -> str:
    files = " ".join(f"{{site-file}}`{suffix.upper()} <{kind}/{slug}.{suffix}>`" for suffix in suffixes)
    origin = [f"profile {profile}"] if profile else []
    head, changes, _ = commit().partition("+")
    origin.append(f"commit {head[:10]}{' with local changes' if changes else ''}")
    return " · ".join([files, *origin])


def _table_classes(frame: pd.DataFrame, sortable: bool) -> list[str]:
    """Names for the style sheet; short names of rows stay on one line, and columns of sentences have room."""
    longest = [max(len(_cell(value)) for value in frame.iloc[:, place]) for place in range(frame.shape[1])]
    looks = {"sortable": sortable, "short-names": longest[0] <= SHORT_NAME, "dense": len(longest) >= MANY_COLUMNS}
    needed = [SENTENCES] * (len(longest) - 1) + [SENTENCE]
    long = [place for place, (length, least) in enumerate(zip(longest, needed, strict=True), 1) if length >= least]
    roomy = [f"sentences-{place}" for place in long if place > 1]
    return ["passport", *(name for name, applies in looks.items() if applies), *roomy]


def _pipe_table(frame: pd.DataFrame) -> list[str]:
    columns = [[_cell(value) for value in frame[column]] for column in frame.columns]
    rules = ["--:" if _is_numeric(cells) else ":--" for cells in columns]
    rows = [[_cell(column) for column in frame.columns], rules, *map(list, zip(*columns, strict=True))]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _cell(value: object) -> str:
    missing = value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)
    return DASH if missing else _kept_together(_one_line(str(value)).replace("|", "\\|"))


def _kept_together(cell: str) -> str:
    """A change between two numbers, a size and an interval do not break over lines."""
    return re.sub(r"(?<=\d) [→×] (?=\d)|(?<=\d), (?=[^\[\]]*\])", lambda gap: gap[0].replace(" ", NO_BREAK), cell)


def _is_numeric(cells: list[str]) -> bool:
    """Whether most cells read as numbers, intervals or changes between numbers, and the others hold no digit."""
    present = [cell for cell in cells if cell not in (DASH, "", "inf")]
    with_digits = [NOT_DIGITS.sub("", cell) for cell in cells if re.search(r"\d", cell)]
    return 2 * len(with_digits) > len(present) and not any(re.search(r"[^\W\d]", cell) for cell in with_digits)


def _write_fragment(lines: list[str], slug: str, folder: Path) -> None:
    (folder / f"{slug}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
