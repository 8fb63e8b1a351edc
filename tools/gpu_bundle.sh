#!/usr/bin/env bash
# tools/gpu_bundle.sh [amd64|arm64]: what the CUDA build needs besides CUDA, in the folder gpu-bundle.
#
# A machine with a GPU often has CUDA and PyTorch, and neither a network nor Debian's packages. Here
# those packages are fetched for its architecture (amd64 by default), from the apt sources of this
# machine but with separate lists: nothing is installed or changed. Only headers and libraries
# are kept, static ones where available. The folder travels with the source tree; there
# tools/gpu.sh finds it.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${1:-amd64}
limit_mib=60  # the tree, the bundle and the data that the tests read, together

die() { echo "gpu_bundle: $*" >&2; exit 1; }

case "$arch" in
amd64) triplet=x86_64-linux-gnu ;;
arm64) triplet=aarch64-linux-gnu ;;
*) die "$arch is not a supported architecture for GPU builds: amd64 or arm64" ;;
esac
for program in apt-get apt-cache dpkg-deb; do
  command -v "$program" >/dev/null || die "$program is not here: make the bundle on Debian or Ubuntu"
done

packages=(libfmt-dev libspdlog-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libxxhash-dev
  libgtest-dev zlib1g-dev libzstd-dev)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/state/lists/partial "$work"/cache/archives/partial "$work"/debs "$work"/tree
: >"$work/status"
options=(-qq -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o "Dir::State=$work/state"
  -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=
  -o Acquire::Languages=none)

echo "gpu_bundle: fetching packages for $arch"
apt-get "${options[@]}" update >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; die "apt-get could not read its lists: is there a network?"; }
# fmt, spdlog and yaml-cpp exist only as shared libraries, in packages named by their version.
mapfile -t shared < <(apt-cache "${options[@]}" depends libfmt-dev libspdlog-dev libyaml-cpp-dev |
  sed -nE 's/^ *Depends: (lib(fmt|spdlog|yaml-cpp)[0-9].*)$/\1/p' | sort -u)
[ ${#shared[@]} -eq 3 ] || die "the apt sources have no fmt, spdlog and yaml-cpp for $arch"
(cd "$work/debs" && apt-get "${options[@]}" download "${packages[@]}" "${shared[@]}") >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; die "apt-get could not download the packages"; }
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$work/tree"; done

# One folder of headers; only the libraries that are linked. Without its .so, CMake uses the .a.
from=$work/tree/usr
to=$work/bundle/usr
mkdir -p "$to/lib/$triplet" "$to/share"
cp -r "$from/include" "$to/"
if [ -d "$to/include/$triplet" ]; then cp -r "$to/include/$triplet/." "$to/include/"; fi
rm -rf "${to:?}/include/$triplet"
cp -r "$from/share/cmake" "$to/share/"
cp -r "$from/lib/$triplet/cmake" "$to/lib/$triplet/"
for name in libz.a libzstd.a libgtest.a libgtest_main.a 'libfmt.so*' 'libspdlog.so*' 'libyaml-cpp.so*'; do
  # shellcheck disable=SC2086
  (cd "$from/lib/$triplet" && cp -P $name "$to/lib/$triplet/") || die "$name is in none of the packages"
done
# Its headers name each other by ../include.
mkdir "$work/bundle/cudnn_frontend"
cp -r "$(tools/setup.sh cudnn)" "$work/bundle/cudnn_frontend/include"
echo "$arch" >"$work/bundle/architecture"
for header in fmt/format.h spdlog/spdlog.h yaml-cpp/yaml.h nlohmann/json.hpp CLI/CLI.hpp xxhash.h \
  gtest/gtest.h zlib.h zconf.h zstd.h ../../cudnn_frontend/include/cudnn_frontend.h; do
  [ -e "$to/include/$header" ] || die "$header is in none of the packages"
done

size() { du -cb --files0-from=- | tail -1 | cut -f1; }
mib() { awk -v bytes="$1" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'; }
bundle_bytes=$(find "$work/bundle" -type f -print0 | size)
tree_bytes=$(git ls-files -co --exclude-standard -z | size)
if [ -d shared ]; then tree_bytes=$((tree_bytes + $(find shared -type f -print0 | size))); fi
total=$((bundle_bytes + tree_bytes))
[ "$total" -le $((limit_mib << 20)) ] ||
  die "tree ($(mib "$tree_bytes")) and bundle ($(mib "$bundle_bytes")) are $(mib $total), over $limit_mib MiB"
rm -rf gpu-bundle
mv "$work/bundle" gpu-bundle
echo "gpu_bundle: gpu-bundle for $arch: $(mib "$bundle_bytes"); source tree, with the data that GPU tests read:" \
  "$(mib "$tree_bytes"); together $(mib $total) of $limit_mib MiB"
