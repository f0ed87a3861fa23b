"""Files that are there whole or not at all, whatever happens to the process that writes them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX, SUFFIX = ".writing-", ".tmp"
"""How the name of a file begins and ends while it has not its own name yet."""


@contextmanager
def written_beside(folder: Path, content: bytes) -> Iterator[Path]:
    """A complete file under a temporary name in the folder, on the disk, for the block to rename or to link.

    What the block has not renamed is removed at its end. Raises OSError where the folder cannot be written to.
    """
    handle, name = tempfile.mkstemp(dir=folder, prefix=PREFIX, suffix=SUFFIX)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def remove_half_written(folder: Path) -> int:
    """Remove what killed writers left below this folder; how many files. Only for who holds the folder."""
    left = list(folder.rglob(f"{PREFIX}*{SUFFIX}"))
    for path in left:
        path.unlink()
    return len(left)
