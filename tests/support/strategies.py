"""Hypothesis strategies shared by the tests: label matrices with gaps, and tables of any label values."""

import re

import numpy as np
from hypothesis import strategies as st

MISSING = -1


@st.composite
def label_matrices(
    draw, min_objects=1, max_objects=12, min_partitions=1, max_partitions=5, max_clusters=4, gaps=True
):
    """Draw ``(n_objects, n_partitions)`` int8 labels, -1 where missing; every partition labels an object.

    Of the type and layout of the labels of a block: kernels are compiled anew for any other.
    """
    n_objects = draw(st.integers(min_objects, max_objects))
    n_partitions = draw(st.integers(min_partitions, max_partitions))
    label = st.integers(MISSING if gaps else 0, max_clusters - 1)
    column = st.lists(label, min_size=n_objects, max_size=n_objects).filter(lambda labels: max(labels) >= 0)
    columns = draw(st.lists(column, min_size=n_partitions, max_size=n_partitions))
    return np.ascontiguousarray(np.array(columns, dtype=np.int8).T)


def is_plain_label(text):
    """Return whether text is a label as it is: neither in blanks, nor a word for missing, nor negative."""
    words = ("", "na", "nan", "n/a", "#na", "?", ".", "-", "--")  # those that may be drawn
    return (
        text == text.strip()
        and text.lower() not in words
        and not re.fullmatch(r"-(0|[1-9][0-9]*)\.?0*", text)
    )


def label_values():
    """Draw a strategy of label values of one kind: small, large or whole-float numbers, or text."""
    return st.sampled_from(
        [
            st.integers(0, 5),
            st.integers(0, 2**62),
            st.integers(0, 300).map(float),
            st.text(max_size=3).filter(is_plain_label),
            st.booleans(),
        ]
    )


@st.composite
def label_columns(draw, n_objects):
    """Draw one partition as a list of ``n_objects`` values of one kind, None where missing."""
    values = st.none() | draw(label_values())
    column = st.lists(values, min_size=n_objects, max_size=n_objects)
    return draw(column.filter(lambda labels: any(label is not None for label in labels)))


@st.composite
def label_tables(draw, max_objects=10, max_partitions=4):
    """Draw a list of rows of label values; the columns are of any kinds."""
    n_objects = draw(st.integers(1, max_objects))
    columns = draw(st.lists(label_columns(n_objects), min_size=1, max_size=max_partitions))
    return [list(row) for row in zip(*columns, strict=True)]
