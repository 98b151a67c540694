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
        return self.image("png", dpi=120)

    def image(self, kind: str, **options: Any) -> bytes:
        """Return the picture as PNG, SVG or PDF; without a date, the same bytes for the same picture."""
        file = io.BytesIO()
        with rc_context(STYLE):
            self.savefig(file, format=kind, **options)
        return file.getvalue()
