"""Argument checks shared by all modules: errors state the value, the rule and the remedy."""

from __future__ import annotations

import os
from math import inf, isfinite
from typing import Any

import numpy as np

from bigcons.errors import InvalidInputError


def check_int(
    name: str, value: object, *, at_least: int = 1, at_most: int | None = None, or_auto: bool = False
) -> int:
    """Return ``value`` as int if it is a whole number in ``[at_least, at_most]``.

    ``or_auto``: "auto" is valid, too, and the caller has taken care of it.
    """
    fault = f"has type {type(value).__name__}"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        number = int(value)
        if number >= at_least and (at_most is None or number <= at_most):
            return number
        fault = "is out of range"
    valid = _range(at_least, at_most) + (" or 'auto'" if or_auto else "")
    raise InvalidInputError(f"{name}={_quote(value)} {fault}; use an integer {valid}.", parameter=name)


def check_number(
    name: str, value: object, *, above: float | None = None, at_least: float = -inf, at_most: float = inf
) -> float:
    """Return ``value`` as float if it is finite, in ``[at_least, at_most]`` and greater than ``above``."""
    fault = f"has type {type(value).__name__}"
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        number = float(value)
        if isfinite(number) and at_least <= number <= at_most and (above is None or number > above):
            return number
        fault = "is out of range"
    low = f"> {above}" if above is not None else _range(at_least, None if at_most == inf else at_most)
    high = f" and <= {at_most}" if above is not None and at_most < inf else ""
    raise InvalidInputError(
        f"{name}={_quote(value)} {fault}; use a finite number {low}{high}.", parameter=name
    )


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if isinstance(value, str) and value in choices:
        return value
    raise InvalidInputError(
        f"{name}={_quote(value)} is unknown; choose one of {', '.join(map(repr, choices))}.", parameter=name
    )


def check_flag(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidInputError(f"{name}={_quote(value)} is not a boolean; use True or False.", parameter=name)


def check_rows(start: int, stop: int, n_objects: int) -> None:
    """Raise InvalidInputError unless the rows ``start`` to ``stop`` are among the objects."""
    if not 0 <= start <= stop <= n_objects:
        raise InvalidInputError(
            f"rows {start} to {stop} are not within the {n_objects:,} objects; "
            f"use 0 <= start <= stop <= {n_objects:,}."
        )


def is_text(index: Any) -> bool:
    """Return whether something is an index of pandas whose entries are text."""
    return getattr(index, "inferred_type", "") == "string"


def check_partition_weights(weights: Any, n_partitions: int) -> np.ndarray:
    """Return the weights of the partitions as float64 (n_partitions,): finite, >= 0 and not all 0.

    A partition of weight 0 is treated as absent: an object that only it labels counts as unlabeled. Only the
    ratios of the weights affect the result, so the largest must be moderate.
    """
    try:
        checked = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):  # also of a mapping
        checked = np.empty(0)
    # sums of products of weights neither underflow nor overflow
    is_moderate = checked.shape == (n_partitions,) and (checked >= 0).all() and 1e-50 <= checked.max() <= 1e50
    if not is_moderate or is_text(getattr(weights, "index", None)):
        raise InvalidInputError(
            f"weights={_quote(weights)} does not fit n_partitions={n_partitions}; pass one number >= 0 for "
            "each, in their order and without names, 0 to omit one, the largest between 1e-50 and 1e+50.",
            parameter="weights",
        )
    return checked


def check_path(path: object) -> str:
    """Return a path, ``~`` expanded, or URL, of text or a Path, as text; refuse line breaks and the like."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or any(ord(letter) < 32 for letter in text):
        raise InvalidInputError(
            f"{_quote(path)} is not a valid path; pass a local path or a URL such as s3://bucket/path."
        )
    if any("\ud800" <= letter <= "\udfff" for letter in text):  # which no head can hold
        raise InvalidInputError(f"{_quote(path)} is a path that is not in UTF-8; rename it.")
    return os.path.expanduser(text)  # noqa: PTH111 - a Path refuses names such as ~x


def _quote(value: object) -> str:
    """Return the repr of ``value``, or its type in angle brackets if the repr is not one short line."""
    text = repr(value)
    return text if len(text) <= 80 and "\n" not in text else f"<{type(value).__name__}>"


def _range(at_least: float, at_most: float | None) -> str:
    return f">= {at_least}" if at_most is None else f"from {at_least} to {at_most}"
