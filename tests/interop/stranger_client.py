#!/usr/bin/env python3
"""Clients that do not know a run's secret, and an ear on the wire that records those who do.

    stranger_client.py record DEVICE              # until SIGTERM
    stranger_client.py visit HOST:PORT ... < RECORDED

`record` prints {"HOST:PORT": hex}: what a client that knew the secret has sent to each port whose protocol begins
with weft's handshake. `visit` connects to every port some 50 times at once, each time with other bytes, and
prints one object per connection. To prove that a failure would be seen, it also visits two ports of its own: one that closes
nothing, and one that lets everyone in.
"""

import argparse
import json
import random
import signal
import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

MAGIC, CHALLENGE_BYTES, ANSWER_BYTES, VERDICT_BYTES = b"weft-hs1", 40, 104, 65  # src/net/handshake.h
NONCE_END, PROOF_AT = 40, 72
MOST_RECORDED = 8192
GIVE_UP_S = 30
ETH_P_ALL, ETH_P_IP, SYN, ACK = 3, 0x0800, 0x02, 0x10
MEGABYTE = 1 << 20


# ------------------------------------------------------------------ record

class Recorder:
    """The first bytes of every TCP connection that is opened while it listens, by direction."""

    def __init__(self):
        self.flows = {}  # (source, destination) of who connects: [next sequence number, bytes]

    def take(self, frame):
        if len(frame) < 54 or struct.unpack_from("!H", frame, 12)[0] != ETH_P_IP or frame[23] != 6:
            return
        tcp = 14 + 4 * (frame[14] & 15)
        ports = struct.unpack_from("!HH", frame, tcp)
        source, destination = (f"{socket.inet_ntoa(frame[26 + 4 * i:30 + 4 * i])}:{ports[i]}" for i in (0, 1))
        number, flags = struct.unpack_from("!I", frame, tcp + 4)[0], frame[tcp + 13]
        if flags & (SYN | ACK) == SYN:
            self.flows[source, destination] = [(number + 1) & 0xFFFFFFFF, b""]
            return
        flow = self.flows.get((source, destination))
        data = frame[tcp + 4 * (frame[tcp + 12] >> 4):14 + struct.unpack_from("!H", frame, 16)[0]]
        if flow and data and number == flow[0] and len(flow[1]) < MOST_RECORDED:
            flow[0], flow[1] = (number + len(data)) & 0xFFFFFFFF, flow[1] + data

    def handshakes(self):
        found = {}
        for (_, destination), (_, data) in self.flows.items():
            if data.startswith(MAGIC) and len(data) >= ANSWER_BYTES and len(data) > len(found.get(destination, "")) // 2:
                found[destination] = data.hex()
        return found


def record(args):
    recorder = Recorder()
    ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    ear.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
    ear.bind((args.device, 0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(json.dumps(recorder.handshakes()), flush=True)))
    print("recording", flush=True)
    while True:
        recorder.take(ear.recv(1 << 17))


# ------------------------------------------------------------------ visit

def truncated(dice, recorded):
    return recorded[:dice.randrange(1, ANSWER_BYTES)]


def forged(dice, recorded):
    """Everything is right but the proof."""
    return MAGIC + dice.randbytes(NONCE_END - len(MAGIC)) + recorded[NONCE_END:PROOF_AT] + dice.randbytes(ANSWER_BYTES - PROOF_AT)


def oversized(dice, recorded):
    """A frame of 4 GiB less one, at once or after a handshake."""
    frame = struct.pack("<IB", 0xFFFFFFFF, dice.randrange(16)) + dice.randbytes(200)
    return dice.choice([b"", recorded[:ANSWER_BYTES]]) + frame


# What is sent: (name, how often, bytes, how: at once, and then perhaps the end; byte by byte; in turn, which waits after an answer).
KINDS = [("silent", 8, lambda dice, recorded: b"", ""),
         ("random bytes", 8, lambda dice, recorded: dice.randbytes(dice.randrange(1, 300)), ""),
         ("a megabyte", 6, lambda dice, recorded: dice.randbytes(MEGABYTE), ""),
         ("a megabyte after the magic", 2, lambda dice, recorded: MAGIC + dice.randbytes(MEGABYTE), ""),
         ("a truncated handshake", 8, truncated, ""),
         ("a truncated handshake and the end", 2, truncated, "end"),
         ("a handshake byte by byte", 2, lambda dice, recorded: recorded[:ANSWER_BYTES - 1], "slow"),
         ("an oversized length", 6, oversized, ""),
         ("a replayed handshake", 4, lambda dice, recorded: recorded[:ANSWER_BYTES], ""),
         ("a replayed connection", 4, lambda dice, recorded: recorded, "in turn"),
         ("a forged proof", 4, forged, "")]


def receive(link, most, deadline):
    link.settimeout(max(0.01, deadline - time.monotonic()))
    return link.recv(most)


def send(link, data, how):
    ends = {"slow": range(1, len(data) + 1), "in turn": (ANSWER_BYTES, len(data))}.get(how, (len(data),))
    pieces = [data[begin:end] for begin, end in zip((0, *ends), ends)]
    for piece in pieces:
        link.sendall(piece)
        time.sleep({"slow": GIVE_UP_S / ANSWER_BYTES, "in turn": 0.5}.get(how, 0))
    if how == "end":
        link.shutdown(socket.SHUT_WR)


def visit_one(endpoint, kind, data, how, is_patient):
    """One connection; a patient client waits for the challenge. closed_s: null where the other side has not closed it."""
    host, port = endpoint.rsplit(":", 1)
    begin, got, is_closed, error = time.monotonic(), b"", False, ""
    try:
        with socket.create_connection((host, int(port)), timeout=GIVE_UP_S) as link:
            begin = time.monotonic()
            deadline = begin + GIVE_UP_S
            try:
                while is_patient and len(got) < CHALLENGE_BYTES and (more := receive(link, CHALLENGE_BYTES - len(got), deadline)):
                    got += more
                send(link, data, how)
                while more := receive(link, 1 << 16, deadline):
                    got += more
                is_closed = True
            except (ConnectionResetError, BrokenPipeError):
                is_closed = True
    except OSError as failure:  # no connection, or the time is over
        error = repr(failure)
    return {"endpoint": endpoint, "kind": kind, "is_patient": is_patient, "error": error, "got": got[:256].hex(),
            "closed_s": time.monotonic() - begin if is_closed else None}


def keeps_open():
    return socket.create_server(("127.0.0.1", 0), backlog=512)


def lets_in():
    """Accepts every client that sends as many bytes as a handshake's answer has."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)

    def serve(link):
        with link:
            link.settimeout(GIVE_UP_S / 3)
            try:
                link.sendall(MAGIC + bytes(CHALLENGE_BYTES - len(MAGIC)))
                got = b""
                while len(got) < ANSWER_BYTES and (more := link.recv(ANSWER_BYTES)):
                    got += more
                link.sendall(b"\1" + bytes(VERDICT_BYTES - 1))
                time.sleep(0.5)
            except OSError:
                pass

    def accept():
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def visit(args):
    recorded = {endpoint: bytes.fromhex(data) for endpoint, data in json.load(sys.stdin).items()}
    dice = random.Random(args.seed)
    controls = {name: make() for name, make in (("keeps open", keeps_open), ("lets in", lets_in))}
    names = {f"127.0.0.1:{listener.getsockname()[1]}": name for name, listener in controls.items()}
    visits = []
    for endpoint in [*args.endpoints, *names]:
        known = recorded.get(endpoint) or next(iter(recorded.values()))
        for kind, count, make, how in KINDS:
            visits += [(endpoint, kind, make(dice, known), how, i % 2 == 0) for i in range(count)]
    dice.shuffle(visits)
    with ThreadPoolExecutor(len(visits)) as pool:
        results = list(pool.map(lambda words: visit_one(*words), visits))
    print(json.dumps([{**result, "endpoint": names.get(result["endpoint"], result["endpoint"])} for result in results]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    modes = parser.add_subparsers(required=True)
    ear_words, visit_words = modes.add_parser("record"), modes.add_parser("visit")
    ear_words.add_argument("device")
    ear_words.set_defaults(run=record)
    visit_words.add_argument("endpoints", nargs="+")
    visit_words.add_argument("--seed", type=int, default=1)
    visit_words.set_defaults(run=visit)
    chosen = parser.parse_args()
    chosen.run(chosen)
