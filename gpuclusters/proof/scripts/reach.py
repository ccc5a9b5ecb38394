"""Looks up pods on other nodes by name and exchanges data with them; says what did not work.

One of these runs on every node, in a StatefulSet with a headless service. Each answers whoever asks, and
asks its neighbours at distances 1, 2, 4, 8 …: with N nodes that is every pair for the first few and log N for
each beyond, so that a node that is cut off is always noticed from both sides. An exchange is large enough
to need full packets, because a wrong MTU or a broken checksum lets small ones through.

One line of JSON when all is known; it goes on answering until it is stopped, because others may be later.

    POD_NAME=reach-0 POD_IP=10.244.1.7 NODE_NAME=gpu-01 python3 reach.py --count 3 --service reach
"""

import argparse
import hashlib
import json
import os
import signal
import socket
import socketserver
import struct
import sys
import threading
import time

SIZE = 256 * 1024
TRY_SECONDS = 5.0
PAUSE_SECONDS = 0.5


def received(peer, size):
    """Exactly so many bytes."""
    whole = b""
    while len(whole) < size:
        part = peer.recv(min(65536, size - len(whole)))
        if not part:
            raise ConnectionError(f"the connection ended after {len(whole)} of {size} bytes")
        whole += part
    return whole


class Answering(socketserver.BaseRequestHandler):
    """Sends back the digest of what came, the node's name, and as much again."""

    def handle(self):
        """One exchange."""
        self.request.settimeout(TRY_SECONDS)
        body = received(self.request, SIZE)
        node = os.environ.get("NODE_NAME", "?").encode()
        digest = hashlib.sha256(body).digest()
        self.request.sendall(struct.pack(">H", len(node)) + node + digest + body)


class Server(socketserver.ThreadingTCPServer):
    """A thread for each exchange."""

    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Whoever asked says what went wrong."""


def exchange(name, port):
    """Look a pod up and exchange data; the node that it runs on."""
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(f"bad address {name}: {error}") from error
    address = found[0][4]
    body = os.urandom(SIZE)
    try:
        with socket.create_connection(address[:2], timeout=TRY_SECONDS) as peer:
            peer.sendall(body)
            node = received(peer, struct.unpack(">H", received(peer, 2))[0]).decode()
            digest, back = received(peer, 32), received(peer, SIZE)
    except OSError as error:
        raise OSError(f"{name} at {address[0]}: {str(error) or type(error).__name__}") from error
    if digest != hashlib.sha256(body).digest() or back != body:
        raise OSError(f"{name} at {address[0]}: what came back is not what was sent")
    return node


def neighbours(own, count):
    """Who is asked: at distances that are powers of two."""
    distances, step = [], 1
    while step < count:
        distances.append(step)
        step *= 2
    return sorted({(own + distance) % count for distance in distances} - {own})


def asked(prefix, number, options, deadline, answers):
    """One neighbour, again and again until it answers or the time is over; once in any case."""
    name, started = f"{prefix}-{number}.{options.service}", time.monotonic()
    answer = {"peer": f"{prefix}-{number}"}
    while True:
        late = time.monotonic() >= deadline
        try:
            answer["node"] = exchange(name, options.port)
            answer.pop("failed", None)
            break
        except OSError as error:
            answer["failed"] = str(error)
        if late:
            break
        time.sleep(PAUSE_SECONDS)
    answers.append({**answer, "seconds": round(time.monotonic() - started, 3)})


def main():
    """Answer, ask, tell, and go on answering."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, required=True, help="pods of the set")
    parser.add_argument("--service", required=True)
    parser.add_argument("--port", type=int, default=7946)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to try")
    options = parser.parse_args()
    prefix, _, number = os.environ["POD_NAME"].rpartition("-")
    server = Server((os.environ.get("POD_IP", ""), options.port), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    answers, deadline = [], time.monotonic() + options.seconds
    tasks = [
        threading.Thread(target=asked, args=(prefix, peer, options, deadline, answers))
        for peer in neighbours(int(number), options.count)
    ]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    answers.sort(key=lambda answer: answer["peer"])
    line = {"proof": "reach", "format": 1, "node": os.environ.get("NODE_NAME", "?")}
    print(json.dumps({**line, "peers": answers}), flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
