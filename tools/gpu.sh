#!/usr/bin/env bash
# tools/gpu.sh: builds with CUDA and runs what needs a GPU.
#
#   tools/gpu.sh bundle [amd64|arm64]  gpu-bundle/: what the build needs besides CUDA (tools/gpu_bundle.sh)
#   tools/gpu.sh build                 weft and the tests, without a time limit
#   tools/gpu.sh test                  kernels against ref, golden runs, ranks on one GPU
#   tools/gpu.sh bench MODEL           weft and torch.compile in turns (benchmarks/gpu_bench.py)
#   tools/gpu.sh survive [MODEL]       ranks on one GPU that are killed, and what snapshots of MODEL cost
#
# Where gpu-bundle/ is one for this machine, it is built in build-gpu from that and CUDA alone; else in
# build-cuda from what is installed. test, bench and survive end with a table of their parts, after 8 minutes at
# most: a part that hangs is stopped, and those after it still run (WEFT_GPU_LIMIT_S: another limit). WEFT_KILLS:
# kills per mode, 12 if unset; more of them get more time.
# WEFT_CMAKE_ARGS is passed to cmake; WEFT_BUILD names a folder that was built before.
set -euo pipefail
cd "$(dirname "$0")/.."
whole_s=465  # divided among the parts below
limit_s=${WEFT_GPU_LIMIT_S:-$whole_s}

die() { echo "gpu.sh: $*" >&2; exit 1; }

has_bundle() {
  local own
  own=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
  [ -e gpu-bundle/architecture ] || return 1
  [ "$(cat gpu-bundle/architecture)" = "$own" ] ||
    { echo "gpu.sh: gpu-bundle is for $(cat gpu-bundle/architecture), this machine is $own: not used" >&2; return 1; }
}

bundle_args=()
build="build-cuda"
if [ -n "${WEFT_BUILD:-}" ]; then
  build=$WEFT_BUILD
elif has_bundle; then
  build="build-gpu"
  # An old-style RPATH also applies to indirect libraries: spdlog's fmt.
  bundle_args=(-B "$build" "-DCMAKE_PREFIX_PATH=$PWD/gpu-bundle/usr"
    "-DWEFT_CUDNN_FRONTEND=$PWD/gpu-bundle/cudnn_frontend/include" -DWEFT_ARROW=OFF -DWEFT_GLOO=OFF
    -DWEFT_CAIRO=OFF "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags")
fi

configure() {
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null || die "nvcc is neither on the path nor in /usr/local/cuda/bin"
  local capabilities
  # Machine code for the GPUs of this machine; where there is none, for all supported ones.
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . |
    sort -u | paste -sd ';') || capabilities=
  # shellcheck disable=SC2086
  cmake --preset cuda "${bundle_args[@]}" ${capabilities:+"-DCMAKE_CUDA_ARCHITECTURES=$capabilities"} \
    ${WEFT_CMAKE_ARGS:-} >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
  grep 'attention of cuDNN' "$build/configure.log" || true
}

make_targets() {
  [ -z "${WEFT_BUILD:-}" ] || return 0
  mkdir -p "$build"
  configure
  cmake --build "$build" -j "$(nproc)" --target "$@"
}

# NCCL and cuDNN are loaded by their names; those that weft does not find, PyTorch may have brought.
find_libraries() {
  local folder name known
  known=$(timeout 60 "$build/weft" doctor --json 2>/dev/null) || return 0
  for folder in $(python3 -c 'import importlib.util as u; s = u.find_spec("nvidia")
print(*(s.submodule_search_locations if s else []))' 2>/dev/null); do
    for name in nccl cudnn; do
      if grep -q "\"$name\": *null" <<<"$known" && compgen -G "$folder/$name/lib/lib$name.so.*" >/dev/null; then
        export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/$name/lib
      fi
    done
  done
}

table=()
failed=0
child=
trap '[ -z "$child" ] || kill "$child" 2>/dev/null; exit 130' INT TERM

# part NAME SHARE_S COMMAND...: runs it, within its share and what is left of the time; its log is $log,
# its row goes to the table. Counts are those of gtest, where it is one.
part() {
  local name=$1 limit=$(($2 * limit_s / whole_s)) begin=$SECONDS rc=0 left=$((limit_s - SECONDS)) verdict=ok passed skipped
  shift 2
  log=$build/gpu-$name.log
  if [ "$left" -lt "$limit" ]; then limit=$left; fi
  if [ "$limit" -le 0 ]; then
    rc=124 limit=0
    : >"$log"
  else
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 &
    child=$!
    wait "$child" || rc=$?
  fi
  passed=-
  if grep -q '^\[====' "$log"; then passed=$(grep -c '^\[       OK \]' "$log") || true; fi
  skipped=$(sed -n 's/^\[  SKIPPED \] \([A-Za-z].*\) (.*/\1/p' "$log" | sort -u)
  if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
    verdict="stopped after $limit s"
  elif [ $rc -ne 0 ]; then
    verdict=FAILED
  elif [ "$passed" = 0 ]; then
    verdict="FAILED: no test ran" rc=1
  fi
  table+=("$(printf '%-10s %8s %8s  %s' "$name" "$passed" $((SECONDS - begin)) "$verdict")")
  echo "gpu.sh: $name: $verdict"
  # shellcheck disable=SC2086
  [ -z "$skipped" ] || printf 'gpu.sh:   skipped: %s\n' $skipped
  [ $rc -eq 0 ] && return 0
  failed=1
  grep -E -A6 'Failure$|^\[  FAILED|[Ee]rror:' "$log" | head -60 || true
  tail -15 "$log"
  return 1
}

# Builds as a separate part; leaves time for the tests.
build_part() {
  [ -z "${WEFT_BUILD:-}" ] || return 0
  [ -e /dev/nvidiactl ] || nvidia-smi -L >/dev/null 2>&1 || die "no GPU here: neither /dev/nvidiactl nor nvidia-smi finds one"
  mkdir -p "$build"
  echo "gpu.sh: building in $build ($build/gpu-build.log)"
  part build 315 env WEFT_TARGETS="$*" tools/gpu.sh build || end
}

end() {
  printf '\n%-10s %8s %8s\n' part passed seconds
  printf '%s\n' "${table[@]}"
  printf '%-10s %8s %8s\n' all '' "$SECONDS"
  exit "$failed"
}

case "${1:-}" in
bundle)
  shift
  exec tools/gpu_bundle.sh "$@"
  ;;
build)
  # shellcheck disable=SC2086
  make_targets ${WEFT_TARGETS:-weft test_kernel test_golden test_dist test_comm test_generate test_cmd}
  ;;
test)
  # The quick ones first. None reads data from outside the tree.
  build_part weft test_kernel test_golden test_dist test_comm test_generate test_cmd
  find_libraries
  part doctor 60 "$build/weft" doctor --json || end
  grep -q '"capability"' "$log" || die "no GPU can be used here: $(sed -n 's/.*"a GPU: \(.*\)",*/\1/p' "$log")"
  part nccl 40 "$build/tests/test_comm" --gtest_filter='*Nccl*' || true
  part generate 40 "$build/tests/test_generate" --gtest_filter='*Gpu*/cuda_qwen2*:*Gpu*/cuda_llama*' || true
  part cmd 40 "$build/tests/test_cmd" --gtest_filter='*Command.Gpu*' || true
  part golden 160 "$build/tests/test_golden" --gtest_filter='*_cuda' || true
  part dist 180 "$build/tests/test_dist" \
    --gtest_filter='*/cuda:*/cuda_qwen2*:*/cuda_llama*:*/cuda_bloom*:*/cuda_t5*' || true
  part kernel 300 env WEFT_TEST_GPU_ALONE=1 "$build/tests/test_kernel" \
    --gtest_filter='-*/planned:*/neon*:*/avx*:*/amx*' || true
  end
  ;;
bench)
  model=${2:-qwen2.5-0.5b}
  models=$(PYTHONPATH=benchmarks python3 -c 'import gpu_workload; print(*gpu_workload.MODELS)')
  case " $models " in *" $model "*) ;; *) die "no model $model; there are: $models" ;; esac
  build_part weft
  find_libraries
  mkdir -p benchmarks/results
  part bench 420 env PYTHONUNBUFFERED=1 python3 benchmarks/gpu_bench.py --weft "$build/weft" \
    --model "$model" --out "benchmarks/results/gpu-$model-$(date +%F).md" || end
  cat "$log"
  end
  ;;
survive)
  kills=${WEFT_KILLS:-12}  # in each of two modes; 15 s for each, with its part of the calm runs
  whole_s=$((whole_s + (kills > 12 ? 15 * (kills - 12) : 0)))
  limit_s=${WEFT_GPU_LIMIT_S:-$whole_s}
  build_part weft
  find_libraries
  export PYTHONUNBUFFERED=1
  mkdir -p benchmarks/results
  part kills $((60 + 15 * kills)) python3 tests/interop/survive_interop.py --weft "$build/weft" --device cuda \
    --moments "$kills" --out "benchmarks/results/survive-$(date +%F)-gpu.md" || true
  grep -v '^ok' "$log" || true
  part snapshots 300 python3 benchmarks/snapshot_table.py --weft "$build/weft" \
    --model "${2:-qwen2.5-0.5b}" --every "${WEFT_EVERY:-0,auto,1,5}" --out "benchmarks/results/gpu-snapshots-${2:-qwen2.5-0.5b}-$(date +%F).md" || true
  cat "$log"
  end
  ;;
*)
  sed -n '2,14p' "$0" | sed 's/^# \?//'
  exit 2
  ;;
esac
