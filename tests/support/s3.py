"""A bucket for tests: a moto server on this machine, which speaks S3."""

import contextlib
import itertools
import logging
import os
import threading
import urllib.request
from collections.abc import Iterator

_numbers = itertools.count()


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Run a server with an empty bucket; yield its URL, with the settings in the environment.

    It serves S3 alone: moto's own server looks for the service of each request in the folders of all. Servers
    of a process share their buckets, so each bucket has a name of its own.
    """
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = create_backend_app("s3")
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    host, port = server.server_address[:2]
    bucket = f"bucket-{next(_numbers)}"
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        make = urllib.request.Request(f"http://{host}:{port}/{bucket}", method="PUT")
        with urllib.request.urlopen(make):
            yield f"s3://{bucket}"
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
        server.shutdown()
        server.server_close()
        thread.join()


def keys_below(url: str) -> list[str]:
    """Return the keys of all objects below a URL, from there on, ascending."""
    import obstore
    from obstore.store import from_url

    root, _, key = url.removeprefix("s3://").partition("/")
    found = obstore.list(from_url(f"s3://{root}"), key).collect()
    return sorted(entry["path"].removeprefix(f"{key}/") for entry in found)
