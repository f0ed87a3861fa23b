"""Two roles of this book: links to files with a stable address, and glued values of another page."""

from docutils import nodes
from myst_nb.ext.glue.roles import PasteTextRole
from sphinx.application import Sphinx
from sphinx.util.docutils import ReferenceRole
from sphinx.util.typing import ExtensionMetadata


class SiteFile(ReferenceRole):
    """``{site-file}`CSV <tables/recount.csv>` ``: a link to a file at that address below the site's root.

    Sphinx's own download role puts files under a hash that changes with their content; citations need an address
    that stays.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        up = "" if self.env.app.builder.name == "singlehtml" else "../" * self.env.docname.count("/")
        return [nodes.reference(self.rawtext, self.title, refuri=up + self.target, classes=["site-file"])], []


class GluedText(PasteTextRole):
    """``{glue:text}`page.ipynb::key` ``: the glued text as it is.

    The role that this one replaces takes the last colon for a format, so that a value of another page needs `:s`
    behind its key. Both spellings work here.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        page, separator, key = str(self.text).partition("::")
        if separator and ":" not in key:
            self.text: str = f"{page}::{key}:s"
        return super().run()


def setup(app: Sphinx) -> ExtensionMetadata:
    app.setup_extension("myst_nb")
    app.add_role("site-file", SiteFile())
    app.add_role_to_domain("glue", "text", GluedText(), override=True)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
