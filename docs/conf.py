"""Settings of Sphinx for `make docs`: the pages of this folder, and the API from the docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pygments.lexers.python import PythonLexer
from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "tidings"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "tidings"
html_show_copyright = False
html_show_sourcelink = False
highlight_language = "none"
myst_heading_anchors = 3
default_role = "literal"  # as docstrings are written
add_module_names = False
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True


def setup(app: Sphinx) -> None:
    """Called by Sphinx once: let it know the kinds of code blocks that are ours or GitHub's."""
    app.add_lexer("pyspark", PythonLexer)
    app.add_lexer("mermaid", TextLexer)
