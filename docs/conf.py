# SPDX-License-Identifier: BSD-3-Clause
"""The site: ``python -m sphinx -W docs build/site``. Pages are Markdown (MyST); the reference is
written from the docstrings of the public names when a build starts, and so are the pages that are
lists: of the names of torch that are absent, and of the functions by library; and the picture on
the first page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from reference import write_reference

import modtree

project = "modtree"
author = "modtree contributors"
copyright = author
version = release = modtree.__version__

language = "en"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["api/README.md"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# The pages link to sources as the repository has them; there the links work.
# ref.python: an error named in Raises may have a namesake, as checkpoints of files and of
# activations have.
suppress_warnings = ["myst.xref_missing", "ref.python"]

html_theme = "furo"
html_title = f"modtree {version}"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_theme_options = {
    "source_repository": "https://github.com/modtree/modtree",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_copy_source = False

autodoc_typehints = "none"  # the Args sections say what a function takes
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shape"]


#: ``literals`` and :roles:`of this kind` as they are, and what reStructuredText would read as
#: markup elsewhere: formulas have stars and bars, methods in place end in an underscore.
MARKUP = re.compile(r"(``.+?``|:\w+:`[^`]+`)|([*|]|(?<=\w)_(?!\w))", re.DOTALL)


def escape(app, what, name, obj, options, lines):
    """Docstrings use no emphasis, no substitutions and no link targets. Those of attributes begin
    with an empty comment: napoleon takes the words before a colon in the first line for a type.
    """
    if lines[:1] == ["dict() -> new empty dictionary"]:
        lines.clear()
    if what in ("attribute", "property", "data"):
        lines[:0] = ["..", ""]
    code = None  # the indentation in front of a block of code
    prose = []
    for i, line in enumerate(lines):
        indentation = len(line) - len(line.lstrip())
        if code is not None and line and indentation <= code:
            code = None
        if code is None and not line.lstrip().startswith((">>>", "...")):
            prose.append(i)
            if line.endswith("::"):
                code = indentation
    if not prose:
        return
    # As one text, for a literal may go on in the next line.
    text = MARKUP.sub(lambda m: m[1] or "\\" + m[2], "\n".join(lines[i] for i in prose))
    for i, line in zip(prose, text.split("\n"), strict=True):
        lines[i] = line


def write_lists(app):
    """In a process each: what torch's names are is looked up before anything else imports them."""
    tools = Path(__file__).parents[1] / "tools"
    made = {
        "list_missing": "missing.md",
        "list_family_functions": "family_functions.md",
        "draw_growth": "growth.svg",
    }
    for tool, page in made.items():
        subprocess.run([sys.executable, tools / tool, Path(app.srcdir) / page], check=True)


def setup(app):
    app.connect("autodoc-process-docstring", escape, priority=400)  # before napoleon
    app.connect("builder-inited", lambda app: write_reference(Path(app.srcdir) / "api"))
    app.connect("builder-inited", write_lists)
