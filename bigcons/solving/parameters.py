"""Parameters of estimators, each declared once: as an attribute with its type, its default and its words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import Field, field, make_dataclass
from typing import Any, ClassVar, dataclass_transform, get_origin


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class Parameters:
    """Gives every subclass a constructor that takes, and a docstring that tells, all of its parameters.

    A parameter is an annotated attribute with a default, ``smoothing: float = 1e-6``, and an entry under
    "Parameters" in the docstring of the class. Subclasses inherit both; one that declares a parameter again
    gives it another default, one that describes it again other words. ``ClassVar`` attributes are none.

    As scikit-learn asks, the constructor sets attributes and does nothing else. A parameter goes by keyword,
    but for ``field(default=8, kw_only=False)``. A class's own come before those it inherits.

    Estimators are no dataclasses, though dataclasses make their constructors: tools that take the fields of
    a dataclass for all there is to it, such as Dask's tokens, would overlook what was fitted.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls):
            made = make_dataclass(cls.__name__, _declared(cls), eq=False, repr=False)
            cls.__init__ = made.__init__  # type: ignore[method-assign, misc]
        if cls.__doc__:
            cls.__doc__ = _documentation(cls, inspect.signature(cls).parameters)


def _declared(cls: type[Parameters]) -> list[tuple[str, Any, Any]]:
    """Return name, type and field of the parameters that a class declares, then of those it inherits."""
    found: dict[str, tuple[str, Any, Any]] = {}
    for home in cls.__mro__:
        annotations = inspect.get_annotations(home, eval_str=True) if issubclass(home, Parameters) else {}
        for name, kind in annotations.items():
            if get_origin(kind) is not ClassVar:
                default = getattr(cls, name)
                given = default if isinstance(default, Field) else field(default=default, kw_only=True)
                found.setdefault(name, (name, kind, given))
    return sorted(found.values(), key=lambda parameter: bool(parameter[2].kw_only))


def _documentation(cls: type[Parameters], names: Iterable[str]) -> str:
    """Return the docstring with an entry for each of ``names``, in their order, from the class or a base."""
    head, _, tail = _split(cls.__doc__)
    described: dict[str, tuple[str, str]] = {}
    for home in reversed(cls.__mro__):
        if issubclass(home, Parameters):
            described |= _entries(_split(home.__doc__)[1])
    together: dict[tuple[str, str], list[str]] = {}
    for name in names:
        if name in described:
            together.setdefault(described[name], []).append(name)
    entries = [f"{', '.join(group)}\n{text}" for (_, text), group in together.items()]
    section = "\n".join(["Parameters\n----------", *entries])
    return "\n\n".join(part for part in (head, section, tail) if part)


def _split(docstring: str | None) -> tuple[str, str, str]:
    """Return what comes before the entries of parameters, these, and what comes after."""
    sections = re.split(r"\n\n(?=\w+\n---)", inspect.cleandoc(docstring or ""))
    entries = [section for section in sections[1:] if section.startswith("Parameters\n")]
    others = [section for section in sections[1:] if section not in entries]
    return sections[0], "".join(entries), "\n\n".join(others)


def _entries(section: str) -> dict[str, tuple[str, str]]:
    """Return for each name the heading and the text that describe it, perhaps along with others."""
    found = re.findall(r"^(\w.*)\n((?:(?:    .*)?\n?)+)", section.partition("---\n")[2], re.MULTILINE)
    return {name: (heading, text.rstrip()) for heading, text in found for name in heading.split(", ")}
