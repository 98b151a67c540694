"""HTML displays of ensembles, pairs, consensuses and estimators in notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from bigcons.errors import MissingDependencyError


def facts_table(caption: str, facts: Mapping[str, Any]) -> str:
    """Return names and values as an HTML table, floats to six digits; None values are left out."""
    rows = "".join(
        f"<tr><th scope='row' style='text-align:left'>{html.escape(str(name))}</th>"
        f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<table><caption>{html.escape(caption)}</caption>{rows}</table>"


def first_rows(caption: str, columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as an HTML table of their first ten rows; the first column heads the rows."""
    n_rows = len(next(iter(columns.values())))
    told = caption if n_rows <= 10 else f"{caption}: 10 of {n_rows:,}"
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in columns)
    lines = []
    for first, *others in list(zip(*columns.values(), strict=True))[:10]:
        cells = "".join(f"<td>{html.escape(_text(value))}</td>" for value in others)
        lines.append(f"<tr><th scope='row'>{html.escape(_text(first))}</th>{cells}</tr>")
    return (
        f"<table><caption>{html.escape(told)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def import_pandas() -> Any:
    """Return pandas; raise MissingDependencyError if it is not installed."""
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            "to_pandas needs pandas, which is not installed; run pip install pandas."
        ) from error
    return pd
