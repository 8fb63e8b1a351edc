// benchmarks/gemm_bench.cpp: GFLOP/s of the matrix product, every level of this machine.
//
//   gemm_bench [level|all] [threads] [seconds per shape]
//
// The shapes are those of one training step of a small model: 2048 tokens, hidden size 512,
// feed-forward width 1408, vocabulary 16384 with the head in pieces of 512 tokens.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernel/kernels.h"

namespace {

using namespace weft;

struct Case {
  const char* name;
  int64_t M, N, K;
  bool a_transposed, b_transposed, accumulate;
};
const Case kCases[] = {
    {"forward qkv", 2048, 768, 512, false, true, false},
    {"forward out", 2048, 512, 512, false, true, false},
    {"forward gate_up", 2048, 2816, 512, false, true, false},
    {"forward down", 2048, 512, 1408, false, true, false},
    {"forward head", 512, 16384, 512, false, true, false},
    {"dx qkv", 2048, 512, 768, false, false, false},
    {"dx out", 2048, 512, 512, false, false, false},
    {"dx gate_up", 2048, 512, 2816, false, false, false},
    {"dx down", 2048, 1408, 512, false, false, false},
    {"dx head", 512, 512, 16384, false, false, false},
    {"dw qkv", 768, 512, 2048, true, false, false},
    {"dw out", 512, 512, 2048, true, false, false},
    {"dw gate_up", 2816, 512, 2048, true, false, false},
    {"dw down", 512, 1408, 2048, true, false, false},
    {"dw head", 16384, 512, 512, true, false, true},
};

// Memory in large pages, as a step's arena is.
class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes / kPage * kPage + kPage))) {
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() { return data_; }
  void fill(Dtype dtype, int64_t n) {
    uint32_t state = 1;
    for (int64_t i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      store_element(data_, dtype, i, static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
  }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  std::byte* data_;
};

struct Rate {
  double median, best;
};

Rate measure(const Kernels& kernels, ThreadPool& pool, const Case& c, Dtype dtype, Dtype c_dtype,
             double seconds) {
  const auto bytes = [](Dtype type, int64_t n) {
    return static_cast<size_t>(dtype_bytes(type) * n);
  };
  Buffer a(bytes(dtype, c.M * c.K)), b(bytes(dtype, c.N * c.K)), out(bytes(c_dtype, c.M * c.N));
  a.fill(dtype, c.M * c.K);
  b.fill(dtype, c.N * c.K);
  out.fill(c_dtype, c.M * c.N);
  GemmArgs args{};
  args.M = c.M, args.N = c.N, args.K = c.K, args.dtype = dtype, args.c_dtype = c_dtype;
  args.a = a.data(), args.a_transposed = c.a_transposed, args.lda = c.a_transposed ? c.M : c.K;
  args.b = Stack{{b.data()}, {c.b_transposed ? c.N : c.K}, 1, c.b_transposed ? c.K : c.N};
  args.b_transposed = c.b_transposed;
  args.c = Stack{{out.data()}, {c.M}, 1, c.N};
  args.accumulate = c.accumulate;
  const size_t scratch = kernels.gemm_workspace(args, pool.num_threads());
  Buffer workspace(scratch);
  const Context context{&pool, workspace.data(), scratch};
  kernels.gemm(context, args);

  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto start = Clock::now();
  do {
    const auto t = Clock::now();
    kernels.gemm(context, args);
    times.push_back(std::chrono::duration<double>(Clock::now() - t).count());
  } while (times.size() < 3 ||
           std::chrono::duration<double>(Clock::now() - start).count() < seconds);
  std::sort(times.begin(), times.end());
  const double work =
      2e-9 * static_cast<double>(c.M) * static_cast<double>(c.N) * static_cast<double>(c.K);
  return {work / times[times.size() / 2], work / times[0]};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "all";
  const int num_threads = argc > 2 ? std::atoi(argv[2]) : 2;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 0.2;
  weft::ThreadPool pool(num_threads);
  for (const char* name : {"neon", "neon_bf16", "avx2", "avx512", "avx512_bf16", "amx"}) {
    const weft::Kernels* kernels = weft::find_kernels(name);
    if (!kernels || (wanted != "all" && wanted != name)) continue;
    std::printf("%s, %d threads: GFLOP/s, median (best)\n", name, num_threads);
    std::printf("%-16s %6s %6s %6s %18s %18s %18s\n", "", "M", "N", "K", "fp32", "bf16",
                "bf16 to fp32");
    for (const Case& c : kCases) {
      std::printf("%-16s %6d %6d %6d", c.name, static_cast<int>(c.M), static_cast<int>(c.N),
                  static_cast<int>(c.K));
      for (const auto& [dtype, c_dtype] :
           {std::pair{Dtype::kF32, Dtype::kF32}, std::pair{Dtype::kBf16, Dtype::kBf16},
            std::pair{Dtype::kBf16, Dtype::kF32}}) {
        const Rate rate = measure(*kernels, pool, c, dtype, c_dtype, seconds);
        std::printf("   %7.1f (%6.1f)", rate.median, rate.best);
        std::fflush(stdout);
      }
      std::printf("\n");
    }
  }
  return 0;
}
