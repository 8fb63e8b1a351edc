#!/usr/bin/env bash
# tools/setup.sh: installs only what is missing.
#
#   tools/setup.sh build|lint|sanitize   Debian packages, and Arrow (the pyarrow wheel) unless WEFT_ARROW=OFF
#   tools/setup.sh interop               ... and a Python environment in the user's cache folder, named
#                                        by the hash of its lock file; its interpreter is printed
#   tools/setup.sh kubernetes            only a Python environment with the Kubernetes client; likewise
#   tools/setup.sh notebook              only a Python environment with a notebook's kernel; likewise
#   tools/setup.sh wheel                 only a Python environment that makes wheels; likewise
#   tools/setup.sh container             only what makes a Debian folder to run the Containerfile in
#   tools/setup.sh cuda                  ... and the headers of cuDNN's frontend; their folder is printed
#   tools/setup.sh cudnn                 only the headers of cuDNN's frontend
#   tools/setup.sh arrow-folder          prints where Arrow is; installs nothing
#   tools/setup.sh cudnn-folder          prints where the frontend's headers are; installs nothing
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

missing=()
# tool COMMAND PACKAGE: any program of that name on the PATH will do.
tool() { command -v "$1" >/dev/null || missing+=("$2"); }
# lib PACKAGE...: headers and libraries are looked up by package.
lib() {
  command -v dpkg-query >/dev/null || return 0
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
}

install_missing() {
  [ ${#missing[@]} -eq 0 ] && return
  local list="${missing[*]}" as_root=()
  command -v apt-get >/dev/null ||
    die "missing: $list. This is not Debian: install what these packages hold, then run again"
  if [ "$(id -u)" -ne 0 ]; then
    # sudo may ask for a password where there is a terminal to type it.
    if ! command -v sudo >/dev/null || { [ ! -t 0 ] && ! sudo -n true 2>/dev/null; }; then
      die "missing: $list. Not root, and sudo does not work here; ask for: apt-get install $list"
    fi
    as_root=(sudo)
  fi
  say "installing $list"
  apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >&2
  }
  # Package lists may be absent or old: a second try with fresh ones.
  apt install -y --no-install-recommends "${missing[@]}" </dev/null 2>/dev/null || {
    apt update </dev/null
    apt install -y --no-install-recommends "${missing[@]}" </dev/null
  } || die "apt-get could not install: $list"
}

# A python3 from another source cannot import the packages that Debian installs.
check_python() {
  local module
  for module in ensurepip yaml; do
    python3 -c "import $module" 2>/dev/null ||
      die "$(command -v python3) has no module $module: install it for this Python, or put Debian's python3 first on the PATH"
  done
}

packages_build() {
  tool g++ g++
  tool cmake cmake
  tool ninja ninja-build
  tool python3 python3
  tool pkg-config pkg-config
  lib libfmt-dev libspdlog-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libxxhash-dev \
    libcairo2-dev libgtest-dev libgloo-dev zlib1g-dev libzstd-dev
  python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  python3 -c 'import yaml' 2>/dev/null || missing+=(python3-yaml)  # for tests of weft_ray; with Ray, Ray installs it
}

# Debian has no Arrow C++: its headers and libraries are in the pyarrow wheel.
install_arrow() { [ "${WEFT_ARROW:-ON}" = OFF ] || python_env tools/locks/arrow.txt >/dev/null; }

# No distribution has cuDNN's frontend: its headers are in the wheel of its Python package.
cudnn_folder() {
  local folder
  for folder in "$(env_folder tools/locks/cudnn.txt)"/lib/python3*/site-packages/include; do
    if [ -e "$folder/cudnn_frontend.h" ]; then echo "$folder"; fi
  done
}

env_cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft

# sources_of LOCK: the list next to it, NAME_source.txt, of packages that exist only as source.
sources_of() { local list=${1%.txt}_source.txt; [ ! -e "$list" ] || echo "$list"; }

# env_folder LOCK: where the environment of a lock file is, or would be.
env_folder() {
  local kind hash
  kind=$(python3 -c 'import sys, platform; print(sys.version_info[:2], platform.machine())')
  hash=$( (cat "$1" $(sources_of "$1"); echo "$kind") | sha256sum | cut -c1-16)
  echo "$env_cache/venv-$hash"
}

# python_env LOCK: the environment's interpreter on standard output. It is built under a temporary
# name, then renamed: an interrupted run leaves nothing that looks complete. (Renamed, its bin/
# scripts do not work; use python -m.) Sources are built last, with the other packages in place.
python_env() {
  local lock=$1 cache=$env_cache sources home
  sources=$(sources_of "$lock")
  home=$(env_folder "$lock")
  if [ ! -x "$home/bin/python" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9  # one set-up at a time
    if [ ! -x "$home/bin/python" ]; then
      say "making the Python environment of $lock (once)"
      rm -rf "$home.tmp"
      python3 -m venv "$home.tmp" >&2
      "$home.tmp/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-compile \
        -r "$lock" >&2 || die "pip could not install $lock"
      # DS_ACCELERATOR: DeepSpeed's setup.py asks for its device.
      [ -z "$sources" ] || DS_ACCELERATOR=cpu PATH="$home.tmp/bin:$PATH" "$home.tmp/bin/python" -m pip \
        install -q --disable-pip-version-check --no-deps --no-compile --no-build-isolation \
        -r "$sources" >&2 || die "pip could not build $sources"
      mv "$home.tmp" "$home"
    fi
    exec 9>&-
  fi
  echo "$home/bin/python"
}

case "${1:-}" in
  build)
    packages_build
    install_missing
    check_python
    install_arrow
    ;;
  lint)
    packages_build  # clang-tidy reads the same headers
    tool git git
    tool clang-format-14 clang-format-14
    tool clang-tidy-14 clang-tidy-14
    install_missing
    install_arrow
    ;;
  sanitize)
    packages_build
    tool clang++-14 clang-14
    lib libclang-rt-14-dev
    install_missing
    install_arrow
    ;;
  interop)
    packages_build
    tool sha256sum coreutils
    tool tc iproute2
    tool mpirun openmpi-bin
    tool sbatch slurm-client
    lib munge slurmctld slurmd  # their programs are in folders that only root has on its path
    install_missing
    install_arrow
    python_env tools/locks/interop.txt
    ;;
  kubernetes)
    python_env tools/locks/kubernetes.txt
    ;;
  notebook)
    python_env tools/locks/notebook.txt
    ;;
  wheel)
    python_env tools/locks/wheel.txt
    ;;
  container)
    tool debootstrap debootstrap
    install_missing
    ;;
  cuda)
    packages_build
    install_missing
    install_arrow
    python_env tools/locks/cudnn.txt >/dev/null
    cudnn_folder
    ;;
  cudnn)
    python_env tools/locks/cudnn.txt >/dev/null
    cudnn_folder
    ;;
  cudnn-folder)
    cudnn_folder
    ;;
  arrow-folder)
    # Nothing where it is not installed; several Pythons never share a folder.
    for folder in "$(env_folder tools/locks/arrow.txt)"/lib/python3*/site-packages/pyarrow; do
      if [ -d "$folder/include/arrow" ]; then echo "$folder"; fi
    done
    ;;
  *)
    die "usage: tools/setup.sh build|lint|sanitize|interop|kubernetes|notebook|wheel|container|cuda|cudnn|arrow-folder|cudnn-folder"
    ;;
esac
