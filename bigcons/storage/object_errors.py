"""What a server of objects, a bucket or credentials get wrong, said in one line with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bigcons.errors import StoreError


@contextmanager
def plain_errors(where: str) -> Iterator[None]:
    """Turn what obstore says of a server, a bucket or credentials into a one-line StoreError.

    A missing object stays a FileNotFoundError.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        text = str(error)
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
            raise
        raise StoreError(f"{where} {_complaint(error, text)}") from None


def _complaint(error: Exception, text: str) -> str:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if "NoSuchBucket" in text:
        return "is in a bucket that does not exist; check the URL, or make the bucket."
    if "latest/api/token" in text:  # what a machine in the cloud asks for, when nothing else is set
        return (
            "needs credentials and found none; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "(or AWS_SKIP_SIGNATURE=true for a public bucket)."
        )
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return "is denied to these credentials; check AWS_ACCESS_KEY_ID and what it is allowed to do."
    if "builder error" in text:
        return "has a server that is asked without encryption; set AWS_ALLOW_HTTP=true if that is right."
    return f"cannot be reached ({reason_of(error)}); check the network, AWS_ENDPOINT_URL and AWS_REGION."


def reason_of(error: Exception) -> str:
    """Return the first line of what obstore says, without the long tail of debugging."""
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
