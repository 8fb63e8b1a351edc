// benchmarks/gemm_speed.cu: TFLOP/s of all products of a training step, and what choosing gains.
//
// Columns: the library's first candidate of any kind (what torch uses), the first that does not
// split K (exact mode), the fastest of 16 (fast mode), which one that is, and the product of the
// step's count and the best time. Operands rotate through memory larger than the L2 cache.
#include <algorithm>

#include "gemm_probe.h"

namespace probe {
namespace {

constexpr int64_t kRotated = int64_t{192} << 20;  // bytes that a round of operands should touch
constexpr int kMostSets = 16;

class Timer {
 public:
  explicit Timer(const Lt& lt) : lt_(lt) {
    PROBE_CHECK(cudaEventCreate(&begin_));
    PROBE_CHECK(cudaEventCreate(&end_));
  }
  ~Timer() {
    for (std::byte* at : {a_, b_, c_}) cudaFree(at);
  }

  void take(const Problem& p) {
    const int64_t bytes = a_bytes(p) + b_bytes(p) + c_bytes(p);
    sets_ = static_cast<int>(std::clamp<int64_t>(kRotated / bytes, 1, kMostSets));
    grow(&a_, &a_size_, a_bytes(p) * sets_, p.in, 1);
    grow(&b_, &b_size_, b_bytes(p) * sets_, p.in, 2);
    grow(&c_, &c_size_, c_bytes(p) * sets_, p.out, 3);
  }

  // Milliseconds of one product: the median of three rounds; negative where the library rejects it.
  double time(const Problem& p, Product* product, const cublasLtMatmulAlgo_t& algo, double ms) {
    if (round(p, product, algo, sets_) < 0) return -1;
    const double once = round(p, product, algo, sets_);
    const int count = std::clamp(static_cast<int>(ms / std::max(once, 1e-3)), 1, 50);
    double times[3];
    for (double& t : times) t = round(p, product, algo, count);
    std::sort(times, times + 3);
    return times[1];
  }

 private:
  static void grow(std::byte** at, int64_t* size, int64_t bytes, cudaDataType_t type,
                   uint64_t seed) {
    if (*size < bytes) {
      cudaFree(*at);
      PROBE_CHECK(cudaMalloc(at, static_cast<size_t>(bytes)));
      *size = bytes;
    }
    fill_random(*at, type, bytes, seed);
  }

  double round(const Problem& p, Product* product, const cublasLtMatmulAlgo_t& algo, int count) {
    PROBE_CHECK(cudaEventRecord(begin_));
    for (int i = 0; i < count; ++i) {
      const int64_t set = i % sets_;
      const Pointers at{a_ + set * a_bytes(p), b_ + set * b_bytes(p), b_, c_ + set * c_bytes(p)};
      if (!product->run(lt_, at, algo)) return -1;
    }
    PROBE_CHECK(cudaEventRecord(end_));
    PROBE_CHECK(cudaEventSynchronize(end_));
    float ms = 0;
    PROBE_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return static_cast<double>(ms) / count;
  }

  const Lt& lt_;
  cudaEvent_t begin_, end_;
  std::byte *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
  int64_t a_size_ = 0, b_size_ = 0, c_size_ = 0;
  int sets_ = 1;
};

struct Times {
  double first = 0, exact = 0, best = 0;  // ms
  Times& operator+=(const Times& t) {
    first += t.first, exact += t.exact, best += t.best;
    return *this;
  }
};
Times operator*(double count, Times t) {
  return {count * t.first, count * t.exact, count * t.best};
}

class Speed {
 public:
  explicit Speed(const Lt& lt) : lt_(lt), timer_(lt) {}

  // count: how often in a step; 0: not part of it, for comparison.
  Times probe(const char* name, const Problem& p, int count) {
    timer_.take(p);
    Product product(p, p);
    const auto any = product.candidates(lt_, kAny, 1);
    const auto exact = product.candidates(lt_, kNoSplits, 1);
    const auto all = product.candidates(lt_, kFixedOrder, 16);
    if (any.empty() || exact.empty() || all.empty()) {
      std::printf("%-26s rejected\n", name);
      return {};
    }
    Times t{timer_.time(p, &product, any[0].algo, 4), timer_.time(p, &product, exact[0].algo, 4)};
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < all.size(); ++i) {
      const double ms = timer_.time(p, &product, all[i].algo, 1);
      if (ms > 0) order.push_back({ms, i});
    }
    std::sort(order.begin(), order.end());
    size_t best = 0;
    for (size_t i = 0; i < std::min<size_t>(3, order.size()); ++i) {
      const double ms = timer_.time(p, &product, all[order[i].second].algo, 4);
      if (t.best == 0 || ms < t.best) t.best = ms, best = order[i].second;
    }
    const double flops =
        2.0 * static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
    const auto rate = [&](double ms) { return flops / ms * 1e-9; };
    std::printf(
        "%-26s %6ldx%6ldx%6ld >%s%s %7.3f ms  first %4.0f  exact %4.0f  best %4.0f (%2zu of "
        "%2zu: %s)",
        name, (long)p.M, (long)p.N, (long)p.K, p.out == CUDA_R_32F ? "f32 " : "bf16",
        p.accumulate ? "+" : " ", t.best, rate(t.first), rate(t.exact), rate(t.best), best,
        all.size(), config_of(all[best].algo).c_str());
    if (count > 0) {
      std::printf("  x %d = %.2f ms", count, count * t.best);
      total_ += count * t;
      flops_ += count * flops;
    }
    std::printf("\n");
    return t;
  }

  // All three directions of a linear layer of N outputs and K inputs.
  Times linear(const std::string& name, int64_t T, int64_t N, int64_t K, int count, bool bias) {
    Problem forward{Kind::kForward, T, N, K};
    forward.bias = bias;
    Times t = probe(("forward " + name).c_str(), forward, count);
    t += probe(("dx " + name).c_str(), {Kind::kDx, T, K, N}, count);
    t += probe(("dw " + name).c_str(), {Kind::kDw, N, K, T}, count);
    t += probe(("dw " + name + " fp32").c_str(), {Kind::kDw, N, K, T, CUDA_R_16BF, CUDA_R_32F}, 0);
    return t;
  }

  void step(const char* model, int64_t T, int layers, int64_t C, int64_t F, int64_t q, int64_t kv,
            int64_t V) {
    std::printf("\n%s, %ld tokens, %d layers\n", model, (long)T, layers);
    total_ = {};
    flops_ = 0;
    linear("qkv", T, q + 2 * kv, C, layers, true);
    linear("out", T, C, q, layers, false);
    linear("gate_up", T, 2 * F, C, layers, false);
    linear("down", T, C, F, layers, false);
    const Times before = total_;
    std::printf("  layers: first %.2f  exact %.2f  best %.2f ms\n", before.first, before.exact,
                before.best);
    for (int64_t rows : {T, T / 2, T / 4}) head(T, rows, C, V);
    std::printf(
        "  a step with the head in one chunk: first %.2f  exact %.2f  best %.2f ms, %.0f "
        "TFLOP/s\n",
        total_.first, total_.exact, total_.best, flops_ / total_.best * 1e-9);
    std::printf("  apart, for comparison:\n");
    linear("q", T, q, C, 0, true);
    linear("k", T, kv, C, 0, true);
    linear("gate", T, F, C, 0, false);
  }

 private:
  // Chunks of `rows` tokens; the gradient grows in fp32 or bf16, or is one product.
  void head(int64_t T, int64_t rows, int64_t C, int64_t V) {
    const int count = rows == T ? 1 : 0, chunks = static_cast<int>(T / rows);
    const std::string name = "head/" + std::to_string(rows);
    Times t = probe(("forward " + name).c_str(), {Kind::kForward, rows, V, C}, count);
    t += probe(("dx " + name).c_str(), {Kind::kDx, rows, C, V}, count);
    Times whole = t, fp32 = t, bf16 = t;
    whole += probe(("dw " + name).c_str(), {Kind::kDw, V, C, rows}, count);
    fp32 +=
        probe(("dw " + name).c_str(), {Kind::kDw, V, C, rows, CUDA_R_16BF, CUDA_R_32F, true}, 0);
    bf16 +=
        probe(("dw " + name).c_str(), {Kind::kDw, V, C, rows, CUDA_R_16BF, CUDA_R_16BF, true}, 0);
    std::printf("  head in %d chunks, best: dw stored %.2f ms, added in fp32 %.2f, in bf16 %.2f\n",
                chunks, chunks * whole.best, chunks * fp32.best, chunks * bf16.best);
  }

  const Lt& lt_;
  Timer timer_;
  Times total_;
  double flops_ = 0;
};

}  // namespace

void probe_speed(const Lt& lt) {
  Speed speed(lt);
  speed.step("Qwen2.5-0.5B 8x1024", 8192, 24, 896, 4864, 896, 128, 151936);
  speed.step("Qwen2-7B 4x2048", 8192, 28, 3584, 18944, 3584, 512, 152064);
}

}  // namespace probe
