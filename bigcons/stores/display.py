"""HTML displays of ensembles, pairs, consensuses and estimators in notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any


def facts_table(caption: str, facts: Mapping[str, Any]) -> str:
    """Return names and values as an HTML table, floats to six digits; None values are left out."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(str(name))}</th>"
        f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<table><caption>{html.escape(caption)}</caption>{rows}</table>"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
