"""Configuration of the documentation: ``sphinx-build -W docs build/docs``."""

import os
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
    "sphinx-mathjax-offline",  # formulas without a network
]
exclude_patterns = ["_build", "_templates", "paper"]
templates_path = ["_templates"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "dollarmath"]
nb_execution_mode = "off"  # outputs are committed, and CI executes the notebooks themselves
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_filename_map = {"bigcons.consensus": "bigcons.consensus-function"}  # beside Consensus on any disk
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
numpydoc_show_class_members = False  # the template of classes lists them
suppress_warnings = ["myst.xref_missing"]  # links from these pages to files of the repository

html_theme = "pydata_sphinx_theme"
html_title = "bigcons"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_theme_options = {
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 11,  # one line in 1280 pixels, with a small button to search
    "navbar_persistent": ["search-button"],
}
_contents = {
    "For users": "Quickstart Choosing Methods Tasks Gallery Notebooks Large_data Command_line Other_tools "
    "Questions API PCC Glossary",
    "Background": "Evidence Comparison Papers Promises Format",
    "For developers": "Architecture",
}
_pages = {
    title: title.lower().replace("_", "-").replace("questions", "faq")
    for titles in _contents.values()
    for title in titles.split()
}
_alone = set(_pages.values()) - {"api", "notebooks"}
html_sidebars = {page: [] for page in sorted(_alone)}  # nothing below them to navigate to
# Links to the pages of others, where there is a network to look them up
intersphinx_mapping: dict[str, tuple[str, None]] = {
    "dask": ("https://docs.dask.org/en/stable", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "python": ("https://docs.python.org/3", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
}
if "READTHEDOCS" not in os.environ:
    intersphinx_mapping = {}


# Notebooks and tables of results, where Sphinx looks for pages, with links that hold from there


def _write_copies(folder: str, texts: dict[str, str], links: dict[str, str]) -> None:
    copies = Path(__file__).parent / folder
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()
    for name, text in texts.items():
        for old, new in links.items():
            text = text.replace(f"]({old}", f"]({new}")
        (copies / name).write_text(text, encoding="utf-8")


def _texts_of(pattern: str, before: str = "") -> dict[str, str]:
    files = sorted(Path(__file__).parents[1].glob(pattern))
    return {file.name: before + file.read_text(encoding="utf-8") for file in files}


_results = _texts_of("benchmarks/results/*.md", before="---\norphan: true\n---\n\n")
_of_tables = {f"../benchmarks/results/{name}": f"results/{name}" for name in _results}
_write_copies(
    "notebooks",
    _texts_of("notebooks/*.ipynb"),
    {
        "../docs/": "../",
        **{old: f"../{new}" for old, new in _of_tables.items()},
        "../benchmarks/": "../../benchmarks/",
    },
)
_write_copies(
    "results",
    _results,
    {f"{Path(name).stem}.png": f"../../benchmarks/results/{Path(name).stem}.png" for name in _results},
)


def setup(app):
    """Let links lead to copies of tables and notebooks, add contents, show attributes with words below."""

    def relink(_app, page: str, source: list[str]) -> None:
        for old, new in {**_of_tables, "../notebooks/": "notebooks/"}.items():
            source[0] = source[0].replace(f"]({old}", f"]({new}")
        if page == "notebooks":
            source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\nnotebooks/*\n```\n"
        if page == "index":  # not in the file, which a repository shows as it is
            for caption, titles in _contents.items():
                lines = [f"{title.replace('_', ' ')} <{_pages[title]}>" for title in titles.split()]
                options = f":maxdepth: 1\n:caption: {caption}\n:hidden:"
                source[0] += "\n".join(["\n```{toctree}", options, "", *lines, "```\n"])

    def tell_attributes(
        _app, what: str, _name: str, _object: object, _options: object, lines: list[str]
    ) -> None:
        """Move what an attribute is from where numpydoc expects a type to a line of its own."""
        if what != "class" or "Attributes" not in lines:
            return
        told, is_inside = [], False
        for line, below in zip(lines, [*lines[1:], ""], strict=True):
            if below and set(below) == {"-"}:
                is_inside = line == "Attributes"
            name, colon, words = line.partition(" : ")
            told += (
                [name, f"    {words[0].upper()}{words[1:]}"]
                if is_inside and colon and name[0] != " "
                else [line]
            )
        lines[:] = told

    app.connect("source-read", relink)
    app.connect("autodoc-process-docstring", tell_attributes, priority=400)  # before numpydoc's 500
