"""A fresh minimal Debian in a folder, made by debootstrap, and commands in it (chroot)."""

import functools
import glob
import os
import re
import shlex
import subprocess

from sampling import ROOT

DEADLINE_S = 3000
# Certificates of a proxy on the way, if there is one.
CERTIFICATES, HOST_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt", "etc/host-certificates.crt"


def run(*words, **more):
    return subprocess.run([str(word) for word in words], text=True, capture_output=True, timeout=DEADLINE_S, check=False, **more)


def archive():
    """The archive of Debian's main packages that apt is set up with; None: debootstrap's own choice."""
    for path in sorted(glob.glob("/etc/apt/sources.list") + glob.glob("/etc/apt/sources.list.d/*")):
        with open(path) as file:
            for line in file:
                match = re.match(r"(?:URIs:|deb(?: \[.*\])?)\s+(\S+/debian)/?(?:\s|$)", line)
                if match:
                    return match.group(1)
    return None


class Debian:
    """One folder that holds a Debian; `place` is the working directory of its commands."""

    def __init__(self, folder):
        self.root, self.env, self.place = folder, {}, "/"

    def inside(self, path):
        return self.root / os.path.join(self.place, path).lstrip("/")

    def run(self, command):
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **self.env}
        if (self.root / HOST_CERTIFICATES).exists():
            env |= {"PIP_CERT": f"/{HOST_CERTIFICATES}", "SSL_CERT_FILE": f"/{HOST_CERTIFICATES}"}
        script = f"cd {shlex.quote(self.place)} && {command}"
        mounts = f"mount --rbind /dev {self.root}/dev && mount -t proc proc {self.root}/proc && "
        words = ["unshare", "-m", "-p", "-f", "--kill-child", "bash", "-c", mounts + 'exec chroot "$0" /bin/bash -c "$1"', self.root, script]
        return run(*words, env=env)


@functools.cache
def bootstrap(release, cache):
    subprocess.run([ROOT / "tools/setup.sh", "container"], check=True)
    done = run("debootstrap", "--variant=minbase", release, cache, *filter(None, [archive()]))
    if done.returncode != 0:
        raise RuntimeError(f"debootstrap: {done.stdout[-800:]}{done.stderr[-800:]}")
    for name, target in (("/etc/resolv.conf", "etc/resolv.conf"), (CERTIFICATES, HOST_CERTIFICATES)):
        if os.path.exists(name):
            run("cp", name, cache / target)


def make_debian(release, folder, cache):
    """A fresh Debian; what debootstrap has made is kept in `cache`, and every folder is a copy of it."""
    bootstrap(release, cache)
    run("cp", "-a", "--one-file-system", cache, folder)  # it has devices, which Python would read
    return Debian(folder)
