"""What a run shows to others: where its secret can be read, its sockets, and the addresses on which it listens."""

import ipaddress
import os
import re
import struct
from pathlib import Path

LISTEN = "0A"


def read_bytes(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""  # a process that has ended, or a file that is gone


def all_pids():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def shows_secret(secret, folder):
    """Command lines and environments of all processes, and files below the folder that have it: [what, ...]."""
    text = secret.encode()
    found = [f"{kind} of {pid}" for pid in all_pids() for kind in ("cmdline", "environ")
             if text in read_bytes(f"/proc/{pid}/{kind}")]
    found += [str(path.relative_to(folder)) for path in sorted(Path(folder).rglob("*"))
              if path.is_file() and text in read_bytes(path)]
    return found


def held_sockets(pids):
    """{inode: pid} of the sockets that these processes have open."""
    found = {}
    for pid in pids:
        try:
            links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        found.update({match[1]: pid for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))})
    return found


def address_of(text):
    """"0100007F:1F90" of /proc/net/tcp: the address alone, as text."""
    words = bytes.fromhex(text.split(":")[0])
    big = b"".join(struct.pack(">I", word) for word in struct.unpack(f"={len(words) // 4}I", words))
    return str(ipaddress.ip_address(big))


def tcp_listeners(pids):
    """(address, port) of every TCP port on which these processes wait for connections."""
    found = set()
    for pid in pids:
        mine = held_sockets([pid])
        for table in ("tcp", "tcp6"):
            for line in read_bytes(f"/proc/{pid}/net/{table}").decode().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTEN and words[9] in mine:
                    found.add((address_of(words[1]), int(words[1].split(":")[1], 16)))
    return found


def listens_on(pids):
    """Addresses, and names in the file system, on which these processes wait for connections."""
    found = {address for address, _ in tcp_listeners(pids)}
    for pid in pids:
        mine = held_sockets([pid])
        for line in read_bytes(f"/proc/{pid}/net/unix").decode(errors="replace").splitlines()[1:]:
            words = line.split()
            if int(words[3], 16) & 0x10000 and words[6] in mine:  # __SO_ACCEPTCON
                found.add(" ".join(words[7:]) or "unix")
    return found


def named_sockets(pids):
    """Files of unix sockets that these processes have open."""
    found = set()
    for pid in pids:
        mine = held_sockets([pid])
        for line in read_bytes(f"/proc/{pid}/net/unix").decode(errors="replace").splitlines()[1:]:
            words = line.split()
            if words[6] in mine and len(words) > 7 and words[7].startswith("/"):
                found.add(words[7])
    return found


class Sockets:
    """Those that a run has had, and what is left of them at its end."""

    def __init__(self):
        self.seen, self.names = set(), set()
        self.ours = set(held_sockets([os.getpid()]))  # a run may inherit them

    def look(self, pids):
        self.seen |= set(held_sockets(pids)) - self.ours
        self.names |= named_sockets(pids)

    def left(self):
        held = held_sockets(pid for pid in all_pids() if pid != os.getpid())
        return [f"socket {inode} of process {held[inode]}" for inode in sorted(self.seen) if inode in held] + \
               [f"socket {name}" for name in sorted(self.names) if os.path.exists(name)]
