"""Configuration of the documentation: ``sphinx-build -W docs build/docs``."""

import shutil
from importlib.metadata import version as version_of
from pathlib import Path

project = "bigcons"
author = "The bigcons developers"
release = version = version_of("bigcons")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "dollarmath"]
nb_execution_mode = "off"  # outputs are committed, and CI executes the notebooks themselves
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # docstrings state types in words
numpydoc_show_class_members = False  # the template of classes lists them
suppress_warnings = ["myst.xref_missing"]  # links from these pages to files of the repository

html_theme = "pydata_sphinx_theme"
html_title = "bigcons"
html_theme_options = {
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 8,
}
_pages = (
    *("quickstart", "choosing", "methods", "pcc", "large-data", "command-line", "faq"),
    *("papers", "promises", "format", "architecture"),
)
html_sidebars = {page: [] for page in _pages}  # nothing below them to navigate to
intersphinx_mapping: dict[str, tuple[str, None]] = {}

# The notebooks, where Sphinx looks for pages, with links that hold from there
_copies = Path(__file__).parent / "notebooks"
shutil.rmtree(_copies, ignore_errors=True)
_copies.mkdir()
for _notebook in sorted((_copies.parents[1] / "notebooks").glob("*.ipynb")):
    _text = _notebook.read_text(encoding="utf-8")
    _text = _text.replace("](../docs/", "](../").replace("](../benchmarks/", "](../../benchmarks/")
    (_copies / _notebook.name).write_text(_text, encoding="utf-8")
