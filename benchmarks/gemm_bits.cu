// benchmarks/gemm_bits.cu: do the algorithms of cuBLASLt that do not split K yield the same bits of
// an element, whichever of them computes it and however M and N are cut?
//
// A result is identified by a hash of all its elements and their positions: a sum of 64-bit
// integers, which has no order. Columns of the table:
//   cand    candidates without split K, and into how many groups their bits fall (1: all the same)
//   M, N    the first and the last candidate, with C made in 2, 4, 8 pieces of rows / of columns:
//           '=' the same bits as whole, 'x' others, '-' the library refuses the piece
//   own     the pieces computed by the first candidate that the library has for them
//   again   the first candidate once more
#include <algorithm>
#include <cstring>
#include <map>

#include "gemm_probe.h"

namespace probe {
namespace {

__device__ uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

__global__ void hash_kernel(const void* c, bool is_float, int64_t M, int64_t N, int64_t ld,
                            unsigned long long* sum) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint64_t mine = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < M * N;
       i += stride) {
    const int64_t at = i / N * ld + i % N;
    const uint32_t bits =
        is_float ? static_cast<const uint32_t*>(c)[at] : static_cast<const uint16_t*>(c)[at];
    mine += mixed(static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u + bits);
  }
  atomicAdd(sum, static_cast<unsigned long long>(mine));
}

// Where round(sum [+ c] [+ bias]) in fp32 is not `got`: the order that weft promises.
__global__ void differ_kernel(const float* sum, const void* c, const void* bias, const void* got,
                              bool is_float, int64_t M, int64_t N, int64_t ld_sum, int64_t ld,
                              unsigned long long* count) {
  const auto value = [&](const void* x, int64_t at) {
    if (is_float) return static_cast<const float*>(x)[at];
    return __uint_as_float(static_cast<uint32_t>(static_cast<const uint16_t*>(x)[at]) << 16);
  };
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < M * N;
       i += stride) {
    const int64_t m = i / N, n = i % N;
    float want = sum[m * ld_sum + n];
    if (c) want = __fadd_rn(want, value(c, m * ld + n));
    if (bias) want = __fadd_rn(want, value(bias, n));
    if (!is_float) {
      const uint32_t u = __float_as_uint(want);
      want = __uint_as_float((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
    }
    if (want != value(got, m * ld + n)) atomicAdd(count, 1ull);
  }
}

class Bits {
 public:
  explicit Bits(const Lt& lt) : lt_(lt) { PROBE_CHECK(cudaMalloc(&counter_, 8)); }
  ~Bits() {
    for (std::byte* at : {a_, b_, c_, sum_, old_}) cudaFree(at);
    cudaFree(counter_);
  }

  void probe(const char* name, const Problem& p) {
    take(p);
    Product whole(p, p);
    // 16 bytes: what weft ensures. Whether the library has better ones for 256 is printed at the
    // end.
    const uint32_t alignment = p.raw ? static_cast<uint32_t>(size_of(p.in)) : 16;
    const auto found = whole.candidates(lt_, kNoSplits, 32, alignment);
    const auto found_256 = whole.candidates(lt_, kNoSplits, 32, 256);
    if (!p.raw && (found.size() != found_256.size() ||
                   (!found.empty() &&
                    std::memcmp(&found[0].algo, &found_256[0].algo, sizeof found[0].algo) != 0))) {
      ++other_for_256_;
    }
    std::map<uint64_t, int> groups;
    std::vector<Candidate> good;
    uint64_t first = 0;
    for (const auto& candidate : found) {
      poison(p);
      if (!whole.run(lt_, at(), candidate.algo)) continue;
      const uint64_t hash = hash_of(p);
      if (good.empty()) first = hash;
      good.push_back(candidate);
      ++groups[hash];
    }
    std::string sizes;
    for (const auto& [hash, count] : groups) {
      sizes += (sizes.empty() ? "" : "+") + std::to_string(count);
    }
    std::printf("%-22s %6ldx%6ldx%6ld %s>%s%s  cand %2zu groups %zu (%s)", name, (long)p.M,
                (long)p.N, (long)p.K, p.in == CUDA_R_32F ? "f32 " : "bf16",
                p.out == CUDA_R_32F ? "f32 " : "bf16", p.raw ? " raw" : "    ", good.size(),
                groups.size(), sizes.c_str());
    ++cases_;
    if (good.empty()) {
      std::printf("\n");
      return;
    }
    std::string text;
    for (bool rows : {true, false}) {
      text += rows ? "  M " : "  N ";
      text += cuts(p, rows, &good.front().algo, first, alignment);
      text += cuts(p, rows, &good.back().algo, first, alignment);
    }
    text += "  own M " + cuts(p, true, nullptr, first, alignment) + " N " +
            cuts(p, false, nullptr, first, alignment);
    poison(p);
    whole.run(lt_, at(), good.front().algo);
    text += hash_of(p) == first ? "  again =" : "  again x";
    if (groups.size() == 1 && text.find('x') == std::string::npos) ++equal_;
    std::printf("%s\n", text.c_str());
    if (groups.size() > 1) {
      for (const Candidate& g : good) {
        poison(p);
        whole.run(lt_, at(), g.algo);
        std::printf("    %016llx %s\n", (unsigned long long)hash_of(p), config_of(g.algo).c_str());
      }
    }
  }

  // C (accumulate) and bias are added after the chain, in this order, with one rounding.
  void probe_epilogue(const char* name, Problem p) {
    take(p);
    Problem plain = p;
    plain.out = CUDA_R_32F;
    plain.accumulate = plain.bias = false;
    Pointers to = at();
    to.c = sum_;
    Product chain(plain, plain), whole(p, p);
    const auto chains = chain.candidates(lt_, kNoSplits, 1);
    const auto found = whole.candidates(lt_, kNoSplits, 32);
    if (chains.empty() || !chain.run(lt_, to, chains[0].algo)) return;
    unsigned long long most = 0;
    for (const auto& candidate : found) {
      PROBE_CHECK(cudaMemcpy(c_, old_, static_cast<size_t>(c_bytes(p)), cudaMemcpyDeviceToDevice));
      if (!whole.run(lt_, at(), candidate.algo)) continue;
      PROBE_CHECK(cudaMemset(counter_, 0, 8));
      differ_kernel<<<1024, 256>>>(reinterpret_cast<const float*>(sum_),
                                   p.accumulate ? old_ : nullptr, p.bias ? at().bias : nullptr, c_,
                                   p.out == CUDA_R_32F, p.M, p.N, ldc(plain), ldc(p), counter_);
      most = std::max(most, counter());
    }
    ++cases_;
    if (most == 0) ++equal_;
    std::printf(
        "%-22s %6ldx%6ldx%6ld %s>%s%s%s  cand %2zu  %llu elements differ from the order "
        "chain, C, bias, rounding\n",
        name, (long)p.M, (long)p.N, (long)p.K, p.in == CUDA_R_32F ? "f32 " : "bf16",
        p.out == CUDA_R_32F ? "f32 " : "bf16", p.accumulate ? " +C" : "", p.bias ? " +bias" : "",
        found.size(), most);
  }

  void summary() const {
    std::printf("%d of %d cases: one group, every cut and repetition with the same bits\n", equal_,
                cases_);
    std::printf("%d cases have other candidates where pointers are aligned to 256 bytes\n",
                other_for_256_);
  }

 private:
  // The first N elements of B are used as bias: any numbers do.
  Pointers at() const { return {a_, b_, b_, c_}; }

  void take(const Problem& p) {
    grow(&a_, &a_size_, a_bytes(p));
    grow(&b_, &b_size_, std::max(b_bytes(p), p.N * 4));
    grow(&c_, &c_size_, c_bytes(p));
    grow(&sum_, &sum_size_, p.accumulate || p.bias ? (p.N + 8) * p.M * 4 : 256);
    grow(&old_, &old_size_, p.accumulate || p.bias ? c_bytes(p) : 256);
    fill_random(a_, p.in, a_bytes(p), 1);
    fill_random(b_, p.in, std::max(b_bytes(p), p.N * 4), 2);
    if (p.accumulate || p.bias) fill_random(old_, p.out, c_bytes(p), 3);
  }
  static void grow(std::byte** at, int64_t* size, int64_t bytes) {
    if (*size >= bytes) return;
    cudaFree(*at);
    PROBE_CHECK(cudaMalloc(at, static_cast<size_t>(bytes)));
    *size = bytes;
  }
  void poison(const Problem& p) {
    PROBE_CHECK(cudaMemset(c_, 0xff, static_cast<size_t>(c_bytes(p))));
  }
  unsigned long long counter() {
    unsigned long long value = 0;
    PROBE_CHECK(cudaMemcpy(&value, counter_, 8, cudaMemcpyDeviceToHost));
    return value;
  }
  uint64_t hash_of(const Problem& p) {
    PROBE_CHECK(cudaMemset(counter_, 0, 8));
    hash_kernel<<<1024, 256>>>(c_, p.out == CUDA_R_32F, p.M, p.N, ldc(p), counter_);
    PROBE_CHECK(cudaGetLastError());
    return counter();
  }

  // C in 2, 4, 8 pieces of rows or of columns, cut where pointers stay aligned.
  std::string cuts(const Problem& p, bool rows, const cublasLtMatmulAlgo_t* algo, uint64_t want,
                   uint32_t alignment) {
    std::string text;
    for (int64_t pieces : {2, 4, 8}) {
      const int64_t whole = rows ? p.M : p.N;
      const int64_t step = std::max<int64_t>(8, (whole / pieces + 7) / 8 * 8);
      poison(p);
      bool ran = true;
      for (int64_t begin = 0; begin < whole && ran; begin += step) {
        ran = run_piece(p, rows, begin, std::min(step, whole - begin), algo, alignment);
      }
      text += !ran ? '-' : hash_of(p) == want ? '=' : 'x';
    }
    return text;
  }

  bool run_piece(const Problem& p, bool rows, int64_t begin, int64_t count,
                 const cublasLtMatmulAlgo_t* algo, uint32_t alignment) {
    Problem piece = p;
    (rows ? piece.M : piece.N) = count;
    Pointers to = at();
    if (rows) {
      to.a += begin * (a_transposed(p) ? 1 : lda(p)) * size_of(p.in);
      to.c += begin * ldc(p) * size_of(p.out);
    } else {
      to.b += begin * (b_transposed(p) ? ldb(p) : 1) * size_of(p.in);
      to.c += begin * size_of(p.out);
    }
    Product product(piece, p);
    if (algo) return product.run(lt_, to, *algo);
    const auto found = product.candidates(lt_, kNoSplits, 1, alignment);
    return !found.empty() && product.run(lt_, to, found[0].algo);
  }

  const Lt& lt_;
  std::byte *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *sum_ = nullptr, *old_ = nullptr;
  int64_t a_size_ = 0, b_size_ = 0, c_size_ = 0, sum_size_ = 0, old_size_ = 0;
  unsigned long long* counter_ = nullptr;
  int cases_ = 0, equal_ = 0, other_for_256_ = 0;
};

struct Width {
  const char* name;
  int64_t N, K;  // of the forward product
};

struct Shape {
  int64_t M, N, K;
};
const Shape kOdd[] = {
    {1003, 18, 77}, {77, 1003, 18}, {18, 77, 1003}, {1003, 1003, 1003}, {1, 904, 899}};
const char* const kOddNames[] = {"odd forward", "odd dx", "odd dw"};

void probe_model(Bits* bits, const std::vector<Width>& widths, int64_t T, cudaDataType_t type) {
  for (const Width& w : widths) {
    const std::string name = w.name;
    bits->probe(("forward " + name).c_str(), {Kind::kForward, T, w.N, w.K, type, type});
    bits->probe(("dx " + name).c_str(), {Kind::kDx, T, w.K, w.N, type, type});
    bits->probe(("dw " + name).c_str(), {Kind::kDw, w.N, w.K, T, type, CUDA_R_32F});
    if (type != CUDA_R_32F) {
      bits->probe(("forward " + name).c_str(), {Kind::kForward, T, w.N, w.K, type, CUDA_R_32F});
      bits->probe(("dw " + name).c_str(), {Kind::kDw, w.N, w.K, T, type, type});
    }
  }
}

}  // namespace

void probe_bits(const Lt& lt) {
  constexpr cudaDataType_t kBf16 = CUDA_R_16BF, kF32 = CUDA_R_32F;
  Bits bits(lt);
  const std::vector<Width> small = {{"0.5B qkv", 1152, 896},
                                    {"0.5B out", 896, 896},
                                    {"0.5B gate_up", 9728, 896},
                                    {"0.5B down", 896, 4864}};
  probe_model(&bits, small, 8192, kBf16);
  probe_model(&bits, {{"0.5B head", 151936, 896}}, 8192, kBf16);
  probe_model(&bits,
              {{"7B qkv", 4608, 3584},
               {"7B out", 3584, 3584},
               {"7B gate_up", 37888, 3584},
               {"7B down", 3584, 18944}},
              8192, kBf16);
  // Leaves of K, and weight gradients of one row of the batch.
  probe_model(&bits, {{"leaf of down", 896, 608}, {"leaf of qkv dx", 144, 896}}, 1024, kBf16);
  probe_model(&bits, small, 2048, kF32);
  for (cudaDataType_t type : {kBf16, kF32}) {
    for (bool raw : {false, true}) {
      for (const Shape& s : kOdd) {
        for (Kind kind : {Kind::kForward, Kind::kDx, Kind::kDw}) {
          Problem p{kind, s.M, s.N, s.K, type, type};
          p.raw = raw;
          bits.probe(kOddNames[static_cast<int>(kind)], p);
        }
      }
    }
  }
  for (bool accumulate : {false, true}) {
    for (bool bias : {false, true}) {
      Problem p{Kind::kForward, 8192, 1152, 896, kBf16, kBf16, accumulate, bias};
      bits.probe_epilogue("epilogue", p);
      if (!bias) {
        bits.probe_epilogue("epilogue", {Kind::kDw, 1152, 896, 8192, kBf16, kF32, accumulate});
        bits.probe_epilogue("epilogue", {Kind::kDw, 1152, 896, 8192, kBf16, kBf16, accumulate});
      }
      bits.probe_epilogue("epilogue",
                          {Kind::kForward, 2048, 1152, 896, kF32, kF32, accumulate, bias});
    }
  }
  bits.summary();
}

}  // namespace probe
