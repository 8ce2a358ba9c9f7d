#!/usr/bin/env python3
"""A pull worker for Redrive: Python 3.9 or newer, standard library only.

    redrive serve --config redrive.yaml        # queues: {work: {}}
    python3 worker.py work                     # in another terminal
    redrive publish work '{"to":"ada"}'

It claims messages, handles each in a thread, and tells Redrive what became of it.
Kill it at any time: what it held comes back when the lease has run out. Kill the
daemon at any time: the worker goes on when the daemon is back, and what it could not
settle is delivered again, so handle() must bear to see a message twice.
"""
import base64
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

SERVER = os.environ.get("REDRIVE_SERVER", "http://127.0.0.1:7333")
TOKEN = os.environ.get("REDRIVE_TOKEN", "")  # needs the scope consume
LEASE = float(os.environ.get("REDRIVE_LEASE", "10"))  # seconds a claim holds; it is extended while handle() runs
THREADS = 8


class Permanent(Exception):
    """Raised by handle() when trying again cannot help."""


def handle(message, body):
    """What your worker does. Return, and it is done; raise, and it is tried again."""
    print(message["id"], body.decode("utf-8", "replace"), flush=True)


def call(path, payload, timeout=30):
    request = urllib.request.Request(
        SERVER + path, json.dumps(payload).encode(), {"Content-Type": "application/json"}
    )
    if TOKEN:
        request.add_header("Authorization", "Bearer " + TOKEN)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)


class Worker:
    def __init__(self, queue, work=handle):
        self.path = "/v1/queues/" + queue
        self.work = work
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.stopping = threading.Event()
        self.held = set()  # receipts that are not settled yet
        self.lock = threading.Lock()
        self.free = threading.Semaphore(THREADS)

    def run(self):
        extender = threading.Thread(target=self.extend, daemon=True)
        extender.start()
        with ThreadPoolExecutor(THREADS) as pool:
            while not self.stopping.is_set():
                self.free.acquire()
                free = 1
                while free < THREADS and self.free.acquire(blocking=False):
                    free += 1
                for message in self.claim(free):
                    with self.lock:
                        self.held.add(message["receipt"])
                    pool.submit(self.one, message)
                    free -= 1
                for _ in range(free):
                    self.free.release()

    def claim(self, n):
        """Waits for messages; an empty list when there are none or the daemon is away."""
        try:
            ask = {"max": n, "lease": f"{LEASE}s", "wait": "5s", "worker": self.name}
            return call(self.path + "/claims", ask)["items"]
        except urllib.error.HTTPError as error:
            self.complain(f"claim: {error.code} {error.read().decode('utf-8', 'replace')}")
            self.stopping.wait(float(error.headers.get("Retry-After") or 1))
        except OSError as error:
            self.complain(f"claim: {error}")
            self.stopping.wait(1)
        return []

    def one(self, message):
        if "body" in message:
            body = message["body"].encode()
        else:
            body = base64.b64decode(message.get("body_base64") or "")
        try:
            self.work(message, body)
            result = {"outcome": "done"}
        except Exception as error:  # a failure of this message, not of the worker
            result = {
                "outcome": "dead" if isinstance(error, Permanent) else "retry",
                "failure": {
                    "type": type(error).__name__,
                    "message": str(error),
                    "stack": traceback.format_exc(),
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                },
            }
        self.settle(dict(result, receipt=message["receipt"]))
        with self.lock:
            self.held.discard(message["receipt"])
        self.free.release()

    def settle(self, settlement):
        """Repeats until the daemon took it; a refusal is final."""
        pause = 0.1
        while True:
            try:
                result = call(self.path + "/settlements", {"settlements": [settlement]})["items"][0]
                if "error" not in result:
                    return
                if result["error"]["status"] < 500 and result["error"]["status"] != 429:
                    # Its lease was lost: it was, or will be, handled elsewhere.
                    self.complain("settle: " + result["error"]["title"])
                    return
                pause = result["error"].get("retry_after", 1)
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    self.complain(f"settle: {error.code}")
                    return
            except OSError as error:
                self.complain(f"settle: {error}")
            time.sleep(pause)
            pause = min(pause * 2, 2)

    def extend(self):
        """Keeps the leases of what is being handled."""
        while True:
            time.sleep(LEASE / 3)
            with self.lock:
                receipts = list(self.held)
            if not receipts:
                continue
            try:
                call(self.path + "/extensions", {"receipts": receipts, "lease": f"{LEASE}s"})
            except OSError as error:  # HTTPError is one, too
                self.complain(f"extend: {error}")

    def complain(self, text):
        print(text, file=sys.stderr, flush=True)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: worker.py QUEUE")
    worker = Worker(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM):  # what is held is finished first
        signal.signal(number, lambda *_: worker.stopping.set())
    worker.run()


if __name__ == "__main__":
    main()
