// benchmarks/cuda_rows_bench.cpp: a GPU's kernels except the products: time, bytes per second.
//
// Bytes are the fewest that the operation must move. Each is captured with as many sets of tensors
// as fill the arena (16 at most), so that none finds its tensors in L2. All inputs are bf16 noise
// in (-2, 2).
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <tuple>
#include <vector>

#include "kernel/device_kernels.h"
#include "tensor/device.h"

namespace {

using namespace weft;  // NOLINT(google-build-using-namespace): a program of one file

constexpr int64_t kR = 8192, kC = 896, kF = 4864, kV = 151936, kHeadRows = 1024;
constexpr int64_t kH = 14, kG = 2, kD = 64, kQkv = (kH + 2 * kG) * kD;
constexpr int64_t kParameters = 200 << 20;
constexpr int64_t kArena = int64_t{8} << 30, kWorkspace = 256 << 20;
constexpr Dtype kType = Dtype::kBf16;

// A piece of the arena after another, 256-byte aligned.
class Pieces {
 public:
  explicit Pieces(std::byte* at) : at_(at) {}
  template <typename T = void>
  T* take(int64_t bytes) {
    std::byte* here = at_;
    at_ += (bytes + 255) / 256 * 256;
    return reinterpret_cast<T*>(here);
  }
  std::byte* end() const { return at_; }

 private:
  std::byte* at_;
};

class Bench {
 public:
  explicit Bench(Device& device)
      : device_(device),
        arena_(device.allocate(kArena)),
        workspace_(device.allocate(kWorkspace)),
        ids_(reinterpret_cast<int32_t*>(device.allocate(kR * 4))),
        pool_(1) {
    std::vector<uint16_t> noise(32 << 20);
    std::mt19937 random(1);
    for (uint16_t& bits : noise) {
      bits = static_cast<uint16_t>((random() & 0x80ffu) | 0x3f00u);
    }
    const auto bytes = static_cast<int64_t>(noise.size() * 2);
    for (int64_t at = 0; at < kArena; at += bytes) device.write(arena_ + at, noise.data(), bytes);
    std::vector<int32_t> ids(kR);
    for (int32_t& id : ids) {  // few ids are frequent, most are rare
      const double u = static_cast<double>(random()) / 4294967296.0;
      id = static_cast<int32_t>(static_cast<double>(kV - 1) * u * u * u * u);
    }
    device.write(ids_, ids.data(), kR * 4);
  }
  const int32_t* ids() const { return ids_; }
  Context context() { return {&pool_, workspace_, kWorkspace, device_.stream()}; }

  // run(pieces) queues the operation on tensors that it takes from pieces.
  void time(const char* name, int64_t bytes, const std::function<void(Pieces&)>& run) {
    Pieces first(arena_);
    run(first);
    device_.wait();
    const int64_t set = first.end() - arena_;
    const int64_t sets = std::clamp<int64_t>(set == 0 ? 16 : kArena / set, 1, 16);
    const auto captured = device_.capture([&] {
      for (int64_t i = 0; i < sets; ++i) {
        Pieces pieces(arena_ + i * set);
        run(pieces);
      }
    });
    captured->replay();
    device_.wait();
    std::vector<double> us;
    for (int i = 0; i < 11; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      captured->replay();
      device_.wait();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      us.push_back(took.count() / static_cast<double>(sets));
    }
    std::sort(us.begin(), us.end());
    fmt::print("{:22} {:9.1f} us {:8.1f} MB {:7.0f} GB/s\n", name, us[5],
               static_cast<double>(bytes) / 1e6, static_cast<double>(bytes) / us[5] / 1e3);
  }

 private:
  Device& device_;
  std::byte *arena_, *workspace_;
  int32_t* ids_;
  ThreadPool pool_;
};

void time_rows(Bench& b, const Kernels& k) {
  const Context c = b.context();
  const int64_t rc = kR * kC * 2, rf = kR * kF * 2;
  b.time("add", 3 * rc, [&](Pieces& p) {
    k.add(c, {kR * kC, kType, p.take(rc), p.take(rc), p.take(rc)});
  });
  b.time("rmsnorm", 4 * rc, [&](Pieces& p) {
    k.rmsnorm(c, {kR, kC, kType, 1e-6f, p.take(rc), p.take(rc), p.take(kC * 2), p.take(rc),
                  p.take(rc), p.take<float>(kR * 4), false});
  });
  b.time("rmsnorm_backward", 4 * rc, [&](Pieces& p) {
    k.rmsnorm_backward(c, {kR, kC, kType, kType, p.take(rc), p.take(rc), p.take(rc), p.take(kC * 2),
                           p.take<float>(kR * 4), p.take(rc), p.take(kC * 2), true});
  });
  b.time("rope", 4 * kR * (kH + kG) * kD, [&](Pieces& p) {
    k.rope(c, {kR, 1024, kH, kG, kD, kType, p.take(kR * kQkv * 2), p.take<float>(1024 * kD * 2),
               p.take<float>(1024 * kD * 2), nullptr, false});
  });
  b.time("swiglu", 3 * rf, [&](Pieces& p) {
    k.swiglu(c, {kR, kF, kType, p.take(2 * rf), p.take(rf)});
  });
  b.time("swiglu_backward", 5 * rf, [&](Pieces& p) {
    k.swiglu_backward(c, {kR, kF, kType, p.take(rf), p.take(2 * rf), p.take(2 * rf)});
  });
  b.time("bias_backward", kR * kQkv * 2, [&](Pieces& p) {
    BiasBackwardArgs args{kR, kQkv, kType, kType, p.take(kR * kQkv * 2), {}, {}, 1, true};
    args.db[0] = p.take(kQkv * 2);
    args.cols[0] = kQkv;
    k.bias_backward(c, args);
  });
  b.time("embedding", 2 * rc, [&](Pieces& p) {
    k.embedding(c, {kR, kC, kV, kType, b.ids(), p.take(kV * kC * 2), p.take(rc)});
  });
  for (const bool accumulate : {true, false}) {
    b.time(accumulate ? "embedding_backward +" : "embedding_backward",
           rc + (accumulate ? 0 : kV * kC * 2), [&](Pieces& p) {
             k.embedding_backward(c, {kR, kC, kV, kType, kType, b.ids(), -1, p.take(rc),
                                      p.take(kV * kC * 2), accumulate});
           });
  }
}

void time_head(Bench& b, const Kernels& k) {
  const Context c = b.context();
  const int64_t bytes = kHeadRows * kV * 2;
  b.time("cross_entropy", 2 * bytes, [&](Pieces& p) {
    k.cross_entropy(
        c, {kHeadRows, kV, kType, p.take(bytes), b.ids(), p.take<float>(kHeadRows * 4), true});
  });
  // The rows of a step: read twice, or kept by one or two blocks per SM; by one also only in part.
  const int64_t all = kR * kV * 2, half = 112 << 10;
  for (const auto& [name, blocks, shared] : {std::tuple{"cross_entropy / 0", 0, INT64_MAX},
                                             {"cross_entropy / 1", 1, INT64_MAX},
                                             {"cross_entropy / 1 half", 1, half},
                                             {"cross_entropy / 2", 2, INT64_MAX}}) {
    b.time(name, 2 * all, [&, blocks = blocks, shared = shared](Pieces& p) {
      k.device->cross_entropy_kept(
          c, {{kR, kV, kType, p.take(all), b.ids(), p.take<float>(kR * 4), true}, blocks, shared});
    });
  }
  b.time("softmax_stats", bytes, [&](Pieces& p) {
    k.softmax_stats(c, {kHeadRows, kV, kV, kType, p.take(bytes), p.take<float>(kHeadRows * 4),
                        p.take<double>(kHeadRows * 8)});
  });
  b.time("softmax_gradient", 2 * bytes, [&](Pieces& p) {
    k.softmax_gradient(c, {kHeadRows, kV, kV, kType, p.take(bytes), b.ids(),
                           p.take<float>(kHeadRows * 4), p.take<float>(kHeadRows * 4)});
  });
}

void time_update(Bench& b, Device& device, const DeviceKernels& k) {
  const Context c = b.context();
  const int64_t n = kParameters, bytes = n * 2;
  auto* scalars = reinterpret_cast<UpdateScalars*>(device.allocate(sizeof(UpdateScalars)));
  const UpdateScalars values = {
      1e5, 1.0, OptimizerScalars::from(AdamwScalars{1e-4, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.5})};
  device.write(scalars, &values, sizeof values);
  auto* limbs = reinterpret_cast<int64_t*>(device.allocate(1024));
  auto* scale = reinterpret_cast<float*>(device.allocate(8));
  auto* norm = reinterpret_cast<double*>(device.allocate(8));
  std::byte* table = device.allocate(8 << 20);
  // The table names its tensors: one set of them, larger than the cache.
  int64_t blocks = 0;
  std::vector<std::byte> host(8 << 20);
  b.time("adamw_list", 7 * bytes, [&](Pieces& p) {
    if (blocks == 0) {
      const UpdateItem item = {
          n, p.take(bytes), nullptr, p.take(bytes), {p.take(bytes), p.take(bytes)}, true};
      blocks = k.update_table(&item, 1, host.data());
      device.write(table, host.data(), static_cast<int64_t>(host.size()));
    }
    k.adamw_list(c, {{kType, kType, {kType, kType}}, table, blocks, scalars, scale});
  });
  blocks = 0;
  b.time("squares_list", bytes, [&](Pieces& p) {
    if (blocks == 0) {
      const SquaresItem item = {n, p.take(bytes), p.take<double>(n / 256 * 8)};
      blocks = k.squares_table(&item, 1, host.data());
      device.write(table, host.data(), static_cast<int64_t>(host.size()));
    }
    k.squares_list(c, {kType, table, blocks});
  });
  b.time("exact_sum", n / 256 * 8, [&](Pieces& p) {
    k.exact_sum(c, {n / 256, Dtype::kF64, p.take(n / 256 * 8), limbs, true});
  });
  b.time("exact_sum of losses", kR * 4, [&](Pieces& p) {
    k.exact_sum(c, {kR, Dtype::kF32, p.take(kR * 4), limbs, true});
  });
  b.time("norm", 560, [&](Pieces&) { k.norm(c, {limbs, scalars, norm, scale}); });
  b.time("store_sum", kV * kC * 6, [&](Pieces& p) {
    k.store_sum(c, {kV * kC, p.take<float>(kV * kC * 4), p.take(kV * kC * 2), kType, false});
  });
}

}  // namespace

int main() {
  std::string why;
  if (!cuda_kernels() || count_cuda_devices(&why) == 0) {
    fmt::print("no GPU: {}\n", cuda_kernels() ? why : "built without CUDA");
    return 0;
  }
  const auto device = open_cuda_device(0);
  Bench bench(*device);
  fmt::print("{}: R {}, C {}, F {}, V {} ({} rows), bf16\n", device->name(), kR, kC, kF, kV,
             kHeadRows);
  bench.time("copy", 4 * kParameters, [&](Pieces& p) {
    void* to = p.take(2 * kParameters);
    device->copy(to, p.take(2 * kParameters), 2 * kParameters);
  });
  time_rows(bench, *cuda_kernels());
  time_head(bench, *cuda_kernels());
  time_update(bench, *device, *cuda_kernels()->device);
  return 0;
}
