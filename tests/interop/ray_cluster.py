"""A real Ray cluster on this machine: nodes are network namespaces on one bridge, and no packet leaves it.

`enter()` moves the calling program into namespaces of its own, where it is the head node's host. Everything
in them ends with the program.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

INSIDE = "WEFT_RAY_INSIDE"
HEAD, PORT = "10.213.0.1", 6379
NETWORK = ("mount -t tmpfs none /run && ip link set lo up && ip link add br0 type bridge && "
           f"ip addr add {HEAD}/24 dev br0 && ip link set br0 up && exec \"$@\"")
START_S, STARTS = 240, 6  # a raylet gives up if its helpers are not there after 15 s: on a busy machine it is started again
# A busy machine is no reason to kill workers or to give up a start; workers are started when they are needed, not one per core in advance.
# Ray gives its workers a niceness of 15: beside other work they would stand still.
DAEMON_ENV = {"RAY_memory_monitor_refresh_ms": "0", "RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0", "RAY_USAGE_STATS_ENABLED": "0",
              "RAY_raylet_start_wait_time_s": str(START_S),
              "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(START_S), "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": str(START_S)}


def enter(before=lambda: None):
    """Runs this program again in its own network, process and mount namespaces; `before` runs once, outside of them."""
    if os.environ.get(INSIDE):
        return
    before()
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    os.execvpe("unshare", ["unshare", *as_root, "--net", "--mount", "--pid", "--fork", "--kill-child=SIGTERM", "--mount-proc", "sh", "-c",
                           NETWORK, "sh", sys.executable, *sys.argv], {**os.environ, **DAEMON_ENV, INSIDE: "1"})


def call(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)


def has_dead_raylet(pid):
    """Of `ray start`, which itself notices much later."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name == "raylet" and rest.split()[:2] == ["Z", str(pid)]:
            return True
    return False


class RayCluster:
    """Use it in a `with`. The nodes have Ray, a home of their own, and neither weft nor a compiler on their PATH."""

    def __init__(self, folder, cpus, *words):
        self.folder, self.cpus, self.words, self.nodes, self.daemons = folder, cpus, words, 1, []
        self.homes = {}  # {name of a node: its HOME}; the first is the head's
        self.address = f"{HEAD}:{PORT}"

    def __enter__(self):
        self.start("head", "--head", "--port", PORT, "--node-ip-address", HEAD, "--num-cpus", self.cpus,
                   *(self.words or ["--include-dashboard=false"]), "--temp-dir", self.folder / "ray")
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            self.end(daemon)

    def end(self, daemon):
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def old_python(self):
        """The environment of a Python that was built with an old glibc, as Miniforge's and so that of Ray's own images."""
        place = self.folder / "old_python"
        place.mkdir(exist_ok=True)
        (place / "sitecustomize.py").write_text("import os\ndel os.memfd_create, os.pidfd_open\n")
        return {"PYTHONPATH": str(place)}

    def start_daemon(self, name, *words, before=(), env=()):
        home = self.homes.setdefault(name, self.folder / "homes" / name)
        home.mkdir(parents=True, exist_ok=True)
        env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "PYTHONUNBUFFERED": "1",
               "GLOO_SOCKET_IFNAME": "br0" if name == "head" else "eth0", **DAEMON_ENV, **dict(env)}  # gloo: of PyTorch, which else takes the host's name
        command = [*before, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats",
                   "--object-store-memory", 200_000_000, *words]
        with open(self.folder / f"{name}.log", "ab") as log:
            self.daemons.append(subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env))
        return self.daemons[-1]

    def add_node(self, cpus, *words, before=()):
        """Another host, in a network namespace of its own; every other one has an old Python. words: of ray start; before: a command that starts it."""
        self.nodes += 1
        name, address = f"h{self.nodes}", f"10.213.0.{self.nodes}"
        call("ip", "netns", "add", name)
        call("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{self.nodes}")
        call("ip", "link", "set", f"p{self.nodes}", "master", "br0", "up")
        call("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        call("ip", "-n", name, "link", "set", "eth0", "up")
        call("ip", "-n", name, "link", "set", "lo", "up")
        return self.start(name, "--address", self.address, "--node-ip-address", address, "--num-cpus", cpus, *words,
                          before=["ip", "netns", "exec", name, *before], env=self.old_python() if self.nodes % 2 == 0 else ())

    def want_nodes(self, count):
        """At least so many are alive, those that are added with one CPU. Call it with Ray connected."""
        import ray
        for _ in range(count - sum(node["Alive"] for node in ray.nodes())):
            self.add_node(1)

    def start(self, name, *words, **more):
        """Waits until the daemon says that it runs."""
        for _ in range(STARTS):
            daemon = self.start_daemon(name, *words, **more)
            deadline = time.monotonic() + START_S
            while time.monotonic() < deadline and daemon.poll() is None and not has_dead_raylet(daemon.pid):
                if "Ray runtime started" in self.log(name):
                    return daemon
                time.sleep(0.05)
            self.end(self.daemons.pop())
            (self.folder / f"{name}.log").rename(self.folder / f"{name}.failed.log")
        raise RuntimeError("Ray did not start:\n" + (self.folder / f"{name}.failed.log").read_text()[-3000:])

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")
