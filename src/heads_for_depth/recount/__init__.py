"""Does a published shape have the published parameters, and if not, which shape does?

Every side of a row is built at full scale on `meta` (vision, timm) or counted by formula (language) and compared with
the printed number. Where it does not print, a rule search looks for changes of the stated shape that do.
"""

from heads_for_depth.recount.counts import Countable, Variant, exact_count
from heads_for_depth.recount.language import EmbeddingRows, LanguageShape
from heads_for_depth.recount.rows import RowRecount, SideRecount, recount_row, recount_rows
from heads_for_depth.recount.search import Level, Rule, Search
from heads_for_depth.recount.stated import stated_side

__all__ = [
    "Countable",
    "EmbeddingRows",
    "LanguageShape",
    "Level",
    "RowRecount",
    "Rule",
    "Search",
    "SideRecount",
    "Variant",
    "exact_count",
    "recount_row",
    "recount_rows",
    "stated_side",
]
