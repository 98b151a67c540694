"""Relabeling and appending with plain lists and dictionaries."""


def is_missing(value):
    return value is None or value != value or (not isinstance(value, (str, bool)) and value < 0)


def relabel(column):
    """Return codes and values of a list of labels: values in ascending order, -1 where missing."""
    values = sorted({value for value in column if not is_missing(value)})
    return [-1 if is_missing(value) else values.index(value) for value in column], values


def decode(codes, values):
    """Return the labels that codes stand for, None where missing."""
    return [None if code < 0 else values[code] for code in codes]


def without_missing(rows):
    """Return rows of labels with every missing one as None."""
    return [[None if is_missing(value) else value for value in row] for row in rows]
