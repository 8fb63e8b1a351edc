#!/usr/bin/env bash
# tools/gpu.sh: builds with CUDA and runs what needs a GPU.
#
#   tools/gpu.sh build              build-cuda/weft and the tests
#   tools/gpu.sh test               kernels against ref, golden runs, ranks on one GPU
#   tools/gpu.sh bench MODEL        weft and torch.compile in turns (benchmarks/gpu_bench.py)
#
# WEFT_CMAKE_ARGS is handed to cmake: -DCMAKE_CUDA_ARCHITECTURES=90 builds for one GPU alone. Where the
# program was built elsewhere, WEFT_BUILD names its folder and nothing is built.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
build=${WEFT_BUILD:-build-cuda}

make_targets() {
  [ -n "${WEFT_BUILD:-}" ] && return
  # shellcheck disable=SC2086
  cmake --preset cuda ${WEFT_CMAKE_ARGS:-} >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
  cmake --build "$build" -j "$jobs" --target "$@"
}

case "${1:-}" in
build)
  make_targets weft test_kernel test_golden test_dist test_comm
  ;;
test)
  make_targets weft test_kernel test_golden test_dist test_comm
  "$build/weft" doctor --json | grep -q '"capability"' || { echo "gpu.sh: no GPU can be used here"; exit 1; }
  "$build/tests/test_kernel" --gtest_brief=1
  "$build/tests/test_golden" --gtest_brief=1 --gtest_filter='*_cuda'
  "$build/tests/test_dist" --gtest_brief=1 --gtest_filter='*Gpu*/cuda_qwen2*:*Gpu*/cuda_llama*'
  "$build/tests/test_comm" --gtest_brief=1 --gtest_filter='*Nccl*'
  ;;
bench)
  make_targets weft
  model=${2:-qwen2.5-0.5b}
  mkdir -p benchmarks/results
  python3 benchmarks/gpu_bench.py --weft "$build/weft" --model "$model" \
    --out "benchmarks/results/gpu-$model-$(date +%F).md"
  ;;
*)
  sed -n '2,10p' "$0" | sed 's/^# \?//'
  exit 2
  ;;
esac
