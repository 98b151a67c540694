"""What is refused ends in one line."""

from contextlib import contextmanager

import pytest

from bigcons.errors import InvalidInputError


@contextmanager
def refused(match=None, kind=InvalidInputError):
    """Assert that what is done here is refused by an error of a kind, in one line that matches."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)
