"""The pages of the documentation: their Python lines run, and the reference lists every public name."""

import inspect
import re
from pathlib import Path

import pytest

import bigcons

DOCS = Path(__file__).parents[1] / "docs"
ROOMS = ("coassociation", "datasets", "distributed", "errors", "generate", "metrics", "plots")
NOT_FOR_USERS = {"first_line", "nearest", "warn_user"}


@pytest.mark.parametrize("page", ["quickstart", "choosing", "large-data"])
def test_pages__python_lines_run(page, tmp_path, monkeypatch, as_small_process):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, page, "exec"), names)
    assert names["model"].labels_.size == names["model"].memberships_.shape[0]


def test_reference__lists_every_public_name():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    listed, module = set(), ""
    for line in text.splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            listed.add(f"{module}.{line.strip()}")
    apart = (*ROOMS, "methods", "METHODS", "__version__")
    public = {f"bigcons.{name}" for name in dir(bigcons) if name not in apart}
    for room in ROOMS:
        for name, value in inspect.getmembers(getattr(bigcons, room)):
            is_ours = getattr(value, "__module__", "").startswith("bigcons") and not name.startswith("_")
            is_used = inspect.isclass(value) or inspect.isfunction(value)
            if is_ours and is_used and name not in NOT_FOR_USERS:
                public.add(f"bigcons.{room}.{name}")
    assert listed == public
