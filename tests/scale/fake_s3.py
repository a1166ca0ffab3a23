"""As much of S3 as Snakemake's plugin asks for, in memory: buckets, objects, lists by prefix."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Objects = dict[str, tuple[bytes, str]]
LIST = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{}</ListBucketResult>'
ROW = "<Contents><Key>{}</Key><Size>{}</Size><LastModified>{}</LastModified></Contents>"
ISO = "2026-01-01T00:00:00.000Z"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Objects

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).strip("/")

    def do_PUT(self) -> None:
        assert "Authorization" in self.headers
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.objects[self._key()] = (body, formatdate(usegmt=True))
        self._answer(200, ETag='"0"')

    def do_HEAD(self) -> None:
        self._object()

    def do_GET(self) -> None:
        if "/" in self._key():
            self._object()
            return
        prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
        rows = [
            ROW.format(escape(key.partition("/")[2]), len(value[0]), ISO)
            for key, value in self.objects.items()
            if key.startswith(f"{self._key()}/{prefix}")
        ]
        self._answer(200, LIST.format("".join(rows)).encode(), Content_Type="application/xml")

    def _object(self) -> None:
        found = self.objects.get(self._key())
        if found is None:
            self._answer(404)
            return
        body, written = found
        self._answer(200, body, length=str(len(body)), Last_Modified=written, ETag='"0"')


@contextmanager
def fake_s3() -> Iterator[tuple[str, Objects]]:
    """Serve on loopback; yield the address and what is stored, ``bucket/key`` to bytes and date."""
    objects: Objects = {}
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (_Handler,), {"objects": objects})
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", objects
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
