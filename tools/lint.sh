#!/usr/bin/env bash
# tools/lint.sh [JOBS]: format, rooms, and clang-tidy on what changed since the previous commit.
#
# ALL=1 runs clang-tidy on every file. Else it has a time budget: files are checked in an order
# shuffled by the commit, and those left when time runs out are counted.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-2}
budget_s=${TIDY_BUDGET_S:-${ALL:+36000}}
budget_s=${budget_s:-150}

sources() { git ls-files -co --exclude-standard -- "$@" | grep -v '^src/text/unicode_tables' || true; }

echo "lint: clang-format"
sources '*.h' '*.cpp' '*.cu' | xargs -r clang-format-14 --dry-run --Werror

echo "lint: rooms"
tools/check_rooms.py

# Changed .cpp files, and the .cpp next to a changed header.
changed() {
  if [ -n "${ALL:-}" ]; then
    sources 'src/*.cpp' 'tests/*.cpp'
    return
  fi
  {
    if git rev-parse -q --verify HEAD~1 >/dev/null; then git diff --name-only HEAD~1; else git ls-files; fi
    git ls-files -o --exclude-standard
  } | sed -n 's/\.\(h\|cpp\)$/.cpp/p' | sort -u | while read -r file; do
    if [ -f "$file" ]; then echo "$file"; fi
  done | grep -E '^(src|tests)/' | grep -v '^src/text/unicode_tables' || true
}

seed=$(git rev-parse HEAD)
files=$(changed | while read -r file; do echo "$(echo "$seed $file" | sha256sum | cut -c1-8) $file"; done |
  sort | cut -d' ' -f2)
if [ -z "$files" ]; then
  echo "lint: clang-tidy has nothing to read"
  exit 0
fi
echo "lint: clang-tidy on $(echo "$files" | wc -l) files"
# A separate build folder: clang cannot read headers that gcc precompiled. Nothing is built in it.
cmake -S . -B build-lint -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DWEFT_FUZZ=ON >build-lint.log 2>&1 || { cat build-lint.log; exit 1; }
rm -f build-lint.log build-lint/unread
deadline=$(($(date +%s) + budget_s))
export deadline
# shellcheck disable=SC2016
echo "$files" | xargs -P "$jobs" -n 1 bash -c '
  if ! grep -qF "/$0\"" build-lint/compile_commands.json; then exit 0; fi
  if [ "$(date +%s)" -ge "$deadline" ]; then echo "$0" >>build-lint/unread; exit 0; fi
  if out=$(clang-tidy-14 --quiet -p build-lint "$0" 2>&1); then exit 0; fi
  echo "$out" | grep -v "warnings generated\|Suppressed\|Use -header-filter"
  exit 1' || { echo "lint: clang-tidy complains"; exit 1; }
if [ -f build-lint/unread ]; then
  echo "lint: time is over, $(wc -l <build-lint/unread) files left unread; ALL=1 make lint reads all"
fi
echo "lint: clean"
