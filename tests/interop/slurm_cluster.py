"""A real Slurm of two nodes on this machine: munged, slurmctld and a slurmd per node, in a folder of their own."""

import os
import re
import shutil
import socket
import subprocess
import time

from common import die_with_parent

DAEMONS_S = 30
FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


def program(name):
    found = shutil.which(name, path=os.pathsep.join([*FOLDERS, os.environ.get("PATH", "")]))
    if not found:
        raise RuntimeError(f"{name} is not installed; tools/setup.sh interop installs it")
    return found


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """Use it in a `with`: everything is ended at its end, by pid."""

    def __init__(self, folder, nodes=("n1", "n2"), preempt=False):
        self.folder, self.nodes, self.daemons = folder, nodes, []
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.preempt = preempt

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def configuration(self, ports):
        host = socket.gethostname().split(".")[0]
        cores = os.cpu_count()
        lines = [
            "ClusterName=weft", f"SlurmctldHost={host}(127.0.0.1)", "SlurmUser=root", "SlurmdUser=root",
            f"SlurmctldPort={ports[0]}", "AuthType=auth/munge", f"AuthInfo=socket={self.folder}/munge.socket,cred_expire=10",
            "CryptoType=crypto/munge", f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool-%n", f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/slurmd-%n.pid", f"SlurmctldLogFile={self.folder}/slurmctld.log",
            f"SlurmdLogFile={self.folder}/slurmd-%n.log", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none", "SlurmdParameters=config_overrides", "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU", "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none", "MpiDefault=none", "ReturnToService=2",
            "SchedulerType=sched/backfill", "SchedulerParameters=sched_interval=1,batch_sched_delay=0",
            "KillWait=5", "JobRequeue=1", "MessageTimeout=20", "RebootProgram=/bin/true",
            "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]
        for name, port in zip(self.nodes, ports[1:]):
            lines.append(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores}")
        names = ",".join(self.nodes)
        lines.append(f"PartitionName=low Nodes={names} Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=20")
        lines.append(f"PartitionName=high Nodes={names} PriorityTier=10 PreemptMode=OFF")
        return "\n".join(lines) + "\n"

    def spawn(self, *words):
        log = open(self.folder / "daemons.log", "ab")
        self.daemons.append(subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=log, env=self.env, preexec_fn=die_with_parent))
        log.close()

    def start(self):
        self.folder.mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(self.configuration(free_ports(1 + len(self.nodes))))
        self.spawn(program("munged"), "--force", "--foreground", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                   f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                   f"--seed-file={self.folder}/munged.seed")
        self.wait_for("munged", lambda: (self.folder / "munge.socket").exists())
        self.spawn(program("slurmctld"), "-D")
        for node in self.nodes:
            self.spawn(program("slurmd"), "-D", "-N", node)
        self.wait_for("nodes", lambda: self.idle_nodes() == len(self.nodes))

    def idle_nodes(self):
        done = subprocess.run([program("sinfo"), "-h", "-p", "low", "-t", "idle", "-o", "%D"], env=self.env, text=True,
                              capture_output=True, timeout=30, check=False)
        return sum(map(int, re.findall(r"\d+", done.stdout)))

    def wait_for(self, what, holds, seconds=DAEMONS_S):
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self.daemons):
                raise RuntimeError(f"Slurm: waiting for {what}:\n{self.logs()}")
            time.sleep(0.05)

    def logs(self):
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in sorted(self.folder.glob("*.log")))

    def call(self, *words, wanted=0, deadline_s=60, env=None):
        done = subprocess.run([program(words[0]), *map(str, words[1:])], env={**self.env, **(env or {})}, text=True,
                              capture_output=True, timeout=deadline_s, check=False)
        if wanted is not None and done.returncode != wanted:
            raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-1500:]}")
        return done.stdout

    def stop(self):
        if len(self.daemons) > 1 and self.daemons[1].poll() is None:
            try:
                self.call("scancel", "--full", "--signal=KILL", "--user=root", wanted=None, deadline_s=10)
                time.sleep(0.5)
            except subprocess.TimeoutExpired:
                pass
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
