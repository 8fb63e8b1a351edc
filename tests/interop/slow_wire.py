#!/usr/bin/env python3
"""A bad wire between two network interfaces: every frame is late, some are lost, connections break.

    slow_wire.py A B --delay-ms 50 [--loss 0.002] [--reset-every 4] [--seed 1] [--count FILE]

Frames that arrive at one interface leave through the other. A connection is broken as a firewall
does it: a packet of it arrives with RST instead of its data, and whoever sends next learns the same
from the other end. Runs until SIGTERM; then FILE has the counts. Kernels that have netem could do the first two.
"""

import argparse
import ctypes
import fcntl
import heapq
import json
import random
import select
import signal
import socket
import struct
import sys
import time

ETH_P_ALL, ETH_P_IP, PACKET_OUTGOING = 3, 0x0800, 4
SIOCETHTOOL, OFFLOADS = 0x8946, (0x17, 0x1F, 0x24, 0x2C)  # transmit checksums, TSO, GSO, GRO
RST, SYN, FIN = 0x04, 0x02, 0x01


def disable_offloads(name):
    """Whole packets with checksums, as on a real wire. Also for the sender's end, in its namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP16x", name.encode(), ctypes.addressof(value))
            fcntl.ioctl(control, SIOCETHTOOL, request)


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def tcp_data_at(frame):
    """Where the TCP header and its data begin, if the frame has data of a connection; else None."""
    if len(frame) < 54 or struct.unpack_from("!H", frame, 12)[0] != ETH_P_IP or frame[23] != 6:
        return None
    tcp = 14 + 4 * (frame[14] & 15)
    data = tcp + 4 * (frame[tcp + 12] >> 4)
    end = 14 + struct.unpack_from("!H", frame, 16)[0]
    is_plain = not frame[tcp + 13] & (RST | SYN | FIN)
    return (tcp, data) if is_plain and end > data else None


def as_reset(frame, tcp):
    """The same packet as RST without options and data."""
    out = bytearray(frame[:tcp + 20])
    struct.pack_into("!H", out, 16, tcp + 20 - 14)
    struct.pack_into("!H", out, 24, 0)
    struct.pack_into("!H", out, 24, checksum(bytes(out[14:tcp])))
    struct.pack_into("!BBHHH", out, tcp + 12, 5 << 4, RST, 0, 0, 0)
    pseudo = bytes(out[26:34]) + struct.pack("!BBH", 0, 6, 20)
    struct.pack_into("!H", out, tcp + 16, checksum(pseudo + bytes(out[tcp:])))
    return bytes(out)


class Wire:
    def __init__(self, args):
        self.args, self.dice = args, random.Random(args.seed)
        self.ends = []
        for name in (args.a, args.b):
            disable_offloads(name)
            end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            end.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
            end.bind((name, 0))
            end.setblocking(False)
            self.ends.append(end)
        self.queue, self.counts = [], {"frames": 0, "lost": 0, "resets": 0}
        self.reset_at = self.next_reset()

    def next_reset(self):
        every = self.args.reset_every
        return time.monotonic() + self.dice.uniform(0.5, 1.5) * every if every > 0 else float("inf")

    def take(self, end):
        while True:
            try:
                frame, where = end.recvfrom(65536)
            except BlockingIOError:
                return
            if where[2] == PACKET_OUTGOING:
                continue
            self.counts["frames"] += 1
            if self.dice.random() < self.args.loss:
                self.counts["lost"] += 1
                continue
            if time.monotonic() >= self.reset_at and (at := tcp_data_at(frame)):
                frame = as_reset(frame, at[0])
                self.counts["resets"] += 1
                self.reset_at = self.next_reset()
            other = self.ends[1 - self.ends.index(end)]
            due = time.monotonic() + self.args.delay_ms / 1000
            heapq.heappush(self.queue, (due, self.counts["frames"], other, frame))

    def send_due(self):
        while self.queue and self.queue[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(self.queue)
            try:
                end.send(frame)
            except OSError:
                self.counts["lost"] += 1  # a full queue

    def run(self):
        while True:
            wait = max(0.0, self.queue[0][0] - time.monotonic()) if self.queue else 0.2
            for end in select.select(self.ends, [], [], wait)[0]:
                self.take(end)
            self.send_due()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("a")
    parser.add_argument("b", nargs="?", help="without it: only turns off what A's card would do")
    parser.add_argument("--delay-ms", type=float, default=50)
    parser.add_argument("--loss", type=float, default=0.0, help="share of frames")
    parser.add_argument("--reset-every", type=float, default=0.0, help="seconds on average; 0: never")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", help="file for the counts, as JSON")
    args = parser.parse_args()
    if args.b is None:
        disable_offloads(args.a)
        return
    wire = Wire(args)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        wire.run()
    finally:
        if args.count:
            with open(args.count, "w", encoding="utf-8") as out:
                json.dump(wire.counts, out)


if __name__ == "__main__":
    main()
