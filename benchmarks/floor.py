"""The least that a Python client can cost: epoll and recv, no stamps, no HTTP, no JSON.

python floor.py BASE_URL STREAMS REQUESTS OUTPUT_TOKENS
"""

from __future__ import annotations

import json
import select
import socket
import sys
from urllib.parse import urlsplit

BUFFER_BYTES = 1 << 16
END = b"0\r\n\r\n"


def request_bytes(output_tokens: int) -> bytes:
    """Return a streamed request."""
    fields = {"model": "reference", "prompt": list(range(64)), "max_tokens": output_tokens}
    body = json.dumps({**fields, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main(base_url: str, streams: int, requests: int, output_tokens: int) -> int:
    """Hold so many streams until so many answers have come; return the number of answers."""
    address = urlsplit(base_url)
    payload = request_bytes(output_tokens)
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    for _ in range(streams):
        sock = socket.create_connection((address.hostname, address.port))
        sockets[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLIN)
    sent = done = 0
    for sock in list(sockets.values())[:requests]:
        sock.sendall(payload)
        sent += 1
    while done < requests:
        for fd, _ in poll.poll():
            data = sockets[fd].recv(BUFFER_BYTES)
            if data.endswith(END):
                done += 1
                if sent < requests:
                    sockets[fd].sendall(payload)
                    sent += 1
    return done


if __name__ == "__main__":
    print(main(sys.argv[1], *(int(value) for value in sys.argv[2:5])))
