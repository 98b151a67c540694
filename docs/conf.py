"""Configuration of the documentation: ``sphinx-build -W docs build/docs``."""

from importlib.metadata import version as version_of

project = "bigcons"
author = "The bigcons developers"
release = version = version_of("bigcons")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
myst_heading_anchors = 3
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
_pages = ("quickstart", "choosing", "large-data", "faq", "papers", "promises", "format", "architecture")
html_sidebars = {page: [] for page in _pages}  # nothing below them to navigate to
intersphinx_mapping: dict[str, tuple[str, None]] = {}
