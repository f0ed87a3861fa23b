"""Where data, records and the book live. No other module knows a path."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
CLAIMS = DATA / "claims"
RESULTS = DATA / "results"
FASHION_MNIST = DATA / "fashion-mnist"
NOTEBOOKS = ROOT / "notebooks"
BOOK = ROOT / "book"
EXECUTED = BOOK / "executed"
GENERATED = BOOK / "_generated"
SITE = ROOT / "_build" / "html"
