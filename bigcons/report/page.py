"""The page of a report: its values as people read them, put into ``template.html``."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import isnan
from typing import Any

from bigcons.memory import format_size
from bigcons.version import __version__

_NAMES = {
    "adjusted_rand": "adjusted Rand", "nmi": "NMI", "n_labeled": "objects", "n_clusters": "clusters",
    "size": "objects", "false_join_rate": "false-join rate", "n_passes": "passes", "n_steps": "steps",
    "second_label": "second cluster", "second_confidence": "its confidence",
    "has_structure": "clear structure", "n_told_apart": "clusters told apart",
    "overall": "all objects", "overall_share": "all objects", "feature": "column",
}  # fmt: skip
_NUMBERS = {
    "share": lambda value: percent(value),
    "coverage": lambda value: percent(value),
    "overall_share": lambda value: percent(value),
    "lift": "{:.2f}\N{MULTIPLICATION SIGN}".format,
    "difference": "{:+.2f}".format,
    "objective": lambda value: f"{value:,.0f}" if abs(value) >= 1e9 else f"{value:,.10g}",
    "moved": "{:,.6g}".format,
    "gap": "{:.3g}".format,
    "seconds": "{:.3g}".format,
    **dict.fromkeys(("agreement", "nmi", "adjusted_rand", "weight", "redundancy"), "{:.3f}".format),
}
"""How numbers of these columns are written."""
_PROBABILITIES = ("confidence", "second_confidence", "hit_rate", "false_join_rate")


def page(**content: Any) -> str:
    """Return the page of a report, of what the template takes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("bigcons", "report"),
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
    )  # fmt: skip
    templates.filters |= {
        "anchor": lambda title: title.lower().replace(" ", "-"),
        "base64": lambda svg: base64.b64encode(svg).decode(),
        "flat": lambda mapping: list(_flat(mapping)),
        "name": name_of,
        "number": lambda value: f"{value:,}",
        "percent": percent,
    }
    templates.globals |= {"cell": cell, "numeric_columns": numeric_columns, "ranked": ranked}
    templates.globals |= {"traits": traits, "passes": passes, "version": __version__}
    return templates.get_template("template.html").render(content)


def name_of(column: str) -> str:
    """Return the name of a column, or of a result, for people."""
    return _NAMES.get(column, column.replace("_", " "))


def cell(column: str, value: Any) -> str:
    """Return a value of a column for people."""
    is_none = value is None or (isinstance(value, float) and isnan(value))
    if is_none or (column in ("nearest", "second_label") and value == -1):
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column == "memory":
        return format_size(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.date().isoformat()
    if not isinstance(value, float):
        return str(value)
    if column in _NUMBERS:
        return _NUMBERS[column](value)
    if column in _PROBABILITIES and 0 < value < 0.001:
        return "<0.001"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.3f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.4g}"


def percent(share: float) -> str:
    """Return a share in percent; what is neither none nor all is not rounded to it."""
    if 0 < share < 0.0005 or 0.9995 <= share < 1:
        return "<0.1%" if share < 0.5 else ">99.9%"
    return f"{share:.1%}"


def numeric_columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> set[str]:
    """Return the columns in which no row has text."""
    return {column for column in columns if not any(isinstance(row.get(column), str) for row in rows)}


def ranked(table: Any, column: str) -> list[dict[str, Any]]:
    """Return the rows of a table, those with the highest value in a column first."""
    return sorted(table.to_pylist(), key=lambda row: -(row[column] or 0.0))


def traits(profiles: Any, cluster: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of `ClusterProfiles` of one cluster: of numbers and dates, those that differ most from
    all objects first, and of text.
    """
    tables = (profiles.numbers, profiles.dates, profiles.categories)
    numbers, dates, texts = ([r for r in table.to_pylist() if r["cluster"] == cluster] for table in tables)
    return (
        sorted([*numbers, *dates], key=lambda row: -abs(row["difference"] or 0.0)),
        [{**row, "overall_share": row["overall"]} for row in texts],
    )


def passes(history: Mapping[str, Sequence[Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns of the history that have a value for every pass, and their rows."""
    length = max(map(len, history.values()), default=0)
    columns = {name: values for name, values in history.items() if values and len(values) == length}
    rows = zip(*columns.values(), strict=True)
    return list(columns), [dict(zip(columns, row, strict=True)) for row in rows]


def _flat(mapping: Mapping[str, Any], before: str = "") -> Iterator[dict[str, str]]:
    """Yield names and values of nested mappings."""
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}: ")
        else:
            shown = cell(name, value) if value is None else str(value)
            yield {"name": f"{before}{name}", "value": shown}
