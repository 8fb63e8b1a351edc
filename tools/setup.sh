#!/usr/bin/env bash
# tools/setup.sh: installs exactly what is missing, and nothing that is there.
#
#   tools/setup.sh build|lint|sanitize   Debian packages
#   tools/setup.sh interop               ... and a Python environment in the user's cache folder, named
#                                        by the hash of its lock file; its interpreter is printed
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

missing=()
# tool COMMAND PACKAGE: a program on the path will do, wherever it comes from.
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
    # sudo may ask for a password where somebody is there to type it.
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

packages_build() {
  tool g++ g++
  tool cmake cmake
  tool ninja ninja-build
  tool python3 python3
  tool pkg-config pkg-config
  lib libfmt-dev libspdlog-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libxxhash-dev \
    libcairo2-dev libgtest-dev
}

# python_env LOCK SOURCES: the environment's interpreter on standard output. What SOURCES names is built
# here, after LOCK is installed. It is made beside, then renamed: an interrupted run leaves nothing that
# looks whole. (Renamed, its bin/ scripts do not work; use python -m.)
python_env() {
  local lock=$1 sources=$2 kind hash cache home
  kind=$(python3 -c 'import sys, platform; print(sys.version_info[:2], platform.machine())')
  hash=$( (cat "$lock" "$sources"; echo "$kind") | sha256sum | cut -c1-16)
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft
  home=$cache/venv-$hash
  if [ ! -x "$home/bin/python" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9  # one set-up at a time
    if [ ! -x "$home/bin/python" ]; then
      say "making the Python environment of $lock (some minutes, 5 GB, once)"
      rm -rf "$home.tmp"
      python3 -m venv "$home.tmp" >&2
      "$home.tmp/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-compile \
        -r "$lock" >&2 || die "pip could not install $lock"
      # DS_ACCELERATOR: DeepSpeed's setup.py asks for its device.
      DS_ACCELERATOR=cpu PATH="$home.tmp/bin:$PATH" "$home.tmp/bin/python" -m pip install -q \
        --disable-pip-version-check --no-deps --no-compile --no-build-isolation \
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
    ;;
  lint)
    packages_build  # clang-tidy reads the same headers
    tool git git
    tool clang-format-14 clang-format-14
    tool clang-tidy-14 clang-tidy-14
    install_missing
    ;;
  sanitize)
    packages_build
    tool clang++-14 clang-14
    lib libclang-rt-14-dev
    install_missing
    ;;
  interop)
    packages_build
    tool sha256sum coreutils
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    install_missing
    python_env tools/locks/interop.txt tools/locks/interop_source.txt
    ;;
  *)
    die "usage: tools/setup.sh build|lint|sanitize|interop"
    ;;
esac
