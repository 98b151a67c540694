"""Draw the pictures of the gallery by the code of its page.

With ``--smallest`` those of an eighth of the digits, into a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from sklearn import datasets

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="of few objects, into a temporary folder")
    arguments = parser.parse_args()
    if arguments.smallest:
        few: Any = [values[::8] for values in datasets.load_digits(return_X_y=True)]
        datasets.load_digits = lambda **_: few
    page = DOCS / "gallery.md"
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary if arguments.smallest else DOCS)
        Path("pictures").mkdir(exist_ok=True)
        names = {"__name__": "gallery"}
        for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
            exec(compile(block, str(page), "exec"), names)
        drawn = {f"pictures/{path.name}" for path in Path("pictures").iterdir()}
    assert drawn == set(re.findall(r"\]\((pictures/[\w.]+)\)", text)), "code and pictures of the page differ"


if __name__ == "__main__":
    main()
