"""The figure that every drawing is made on; it shows itself in any notebook."""

from __future__ import annotations

import io
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.hashsalt": "bigcons",
}


class Picture(Figure):
    """A matplotlib figure that Jupyter shows as an image, whether or not pyplot was imported."""

    def _repr_png_(self) -> bytes:
        with rc_context({**STYLE, "savefig.dpi": 120}):
            return self._saved("png")

    def svg(self) -> bytes:
        """Return the picture as SVG, the same bytes for the same picture."""
        with rc_context(STYLE):
            return self._saved("svg", metadata={"Date": None})

    def _saved(self, kind: str, **options: Any) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format=kind, **options)
        return file.getvalue()
