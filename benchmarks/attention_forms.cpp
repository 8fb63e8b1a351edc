// benchmarks/attention_forms.cpp: the built-in attention with biases and dropout beside cuDNN's
// plain attention of the same shape, forward and backward, in turns.
//
//   attention_forms [TURNS [NAME]]
//
// Microseconds, the median of TURNS (11) turns; each is a captured graph of kCalls calls. NAME:
// only shapes whose name contains it. cuDNN is called as in training: deterministic, and with the
// lengths where it is not causal.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernel/attention_bias.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/ops.h"
#include "kernel/packed_qkv.h"
#include "tensor/device.h"

namespace {

using namespace weft;  // NOLINT(google-build-using-namespace): a program of one file

constexpr int kCalls = 10;  // in one graph

struct Shape {
  const char* name;
  int64_t B, T, S, H, G, D;
  bool causal;
  AttentionBias::Kind bias = AttentionBias::Kind::kNone;
  double dropout = 0;
};

class Bench {
 public:
  Bench(Device& device, const Shape& s) : device_(device), s_(s), pool_(1) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto noise = [&](int64_t n) {
      std::vector<Bf16> values(static_cast<size_t>(n));
      for (Bf16& v : values) v = to_bf16(normal(random));
      std::byte* at = allocate(2 * n);
      device_.write(at, values.data(), 2 * n);
      return at;
    };
    const int64_t queries = s.B * s.T * s.H * s.D, keys = s.B * s.S * s.G * s.D;
    q_ = noise(queries), dout_ = noise(queries), k_ = noise(keys), v_ = noise(keys);
    table_ = noise(kBuckets * s.H);
    out_ = allocate(2 * queries), dq_ = allocate(2 * queries);
    dk_ = allocate(2 * keys), dv_ = allocate(2 * keys);
    lse_ = reinterpret_cast<float*>(allocate(4 * s.B * s.H * s.T));
    dtable_ = allocate(4 * kBuckets * s.H);
    lengths_ = numbers<int32_t>(s.B, static_cast<int32_t>(s.T));
    source_lengths_ = s.T == s.S ? lengths_ : numbers<int32_t>(s.B, static_cast<int32_t>(s.S));
    rows_ = numbers<int64_t>(2 * s.B, 7);
    for (const bool is_plain : {true, false}) {
      bytes_ = std::max({bytes_, cuda::attention_workspace(forward_args(is_plain), 1),
                         cuda::attention_backward_workspace(backward_args(is_plain), 1)});
    }
    workspace_ = allocate(static_cast<int64_t>(bytes_));
  }
  ~Bench() {
    for (const auto& [at, bytes] : taken_) device_.free(at, bytes);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // plain: cuDNN without bias and dropout.
  void forward(bool is_plain) {
    cuda::attention_settings() = {.cudnn = is_plain};
    cuda::attention(context(), forward_args(is_plain));
  }
  void backward(bool is_plain) {
    cuda::attention_settings() = {.cudnn = is_plain};
    cuda::attention_backward(context(), backward_args(is_plain));
  }
  bool is_cudnn() { return cuda::cudnn_supports(context(), forward_args(true)); }

 private:
  static constexpr int kBuckets = 32;

  AttentionArgs forward_args(bool is_plain) const {
    AttentionArgs args;
    set_common(&args, is_plain);
    args.out = contiguous_heads<void>(out_, s_.T, s_.H, s_.D);
    args.lse = lse_;
    return args;
  }
  AttentionBackwardArgs backward_args(bool is_plain) const {
    AttentionBackwardArgs args;
    set_common(&args, is_plain);
    args.out = contiguous_heads<const void>(out_, s_.T, s_.H, s_.D);
    args.dout = contiguous_heads<const void>(dout_, s_.T, s_.H, s_.D);
    args.lse = lse_;
    args.dq = contiguous_heads<void>(dq_, s_.T, s_.H, s_.D);
    args.dk = contiguous_heads<void>(dk_, s_.S, s_.G, s_.D);
    args.dv = contiguous_heads<void>(dv_, s_.S, s_.G, s_.D);
    if (args.bias.kind == AttentionBias::Kind::kRelative) args.dtable = dtable_;
    return args;
  }
  void set_common(AttentionOperands* args, bool is_plain) const {
    args->B = s_.B, args->T = s_.T, args->S = s_.S, args->H = s_.H, args->G = s_.G, args->D = s_.D;
    args->dtype = Dtype::kBf16;
    args->scale = 1.0f / std::sqrt(static_cast<float>(s_.D));
    args->causal = s_.causal;
    args->q = contiguous_heads<const void>(q_, s_.T, s_.H, s_.D);
    args->k = contiguous_heads<const void>(k_, s_.S, s_.G, s_.D);
    args->v = contiguous_heads<const void>(v_, s_.S, s_.G, s_.D);
    args->lengths = lengths_;
    args->source_lengths = source_lengths_;
    if (is_plain) return;
    args->bias = {.kind = s_.bias, .first_head = 0, .num_heads = s_.H, .table = table_};
    if (s_.bias == AttentionBias::Kind::kRelative)
      args->bias.buckets = relative_buckets(kBuckets, 128, !s_.causal);
    args->dropout = {.rate = s_.dropout, .seed = 3, .site = 1, .first_head = 0, .rows = rows_};
  }
  template <typename T>
  T* numbers(int64_t n, T value) {
    const std::vector<T> all(static_cast<size_t>(n), value);
    const auto bytes = static_cast<int64_t>(sizeof(T)) * n;
    std::byte* at = allocate(bytes);
    device_.write(at, all.data(), bytes);
    return reinterpret_cast<T*>(at);
  }
  Context context() { return {&pool_, workspace_, bytes_, device_.stream()}; }
  std::byte* allocate(int64_t bytes) {
    std::byte* at = device_.allocate(bytes);
    taken_.emplace_back(at, bytes);
    return at;
  }
  Device& device_;
  Shape s_;
  ThreadPool pool_;
  std::byte *q_, *k_, *v_, *table_, *out_, *dout_, *dq_, *dk_, *dv_, *dtable_;
  float* lse_;
  int32_t *lengths_, *source_lengths_;
  int64_t* rows_;
  std::byte* workspace_ = nullptr;
  size_t bytes_ = 0;
  std::vector<std::pair<std::byte*, int64_t>> taken_;
};

// Microseconds of a call of each, the median of the turns.
std::vector<double> take_turns(Device& device, const std::vector<std::function<void()>>& works,
                               int turns) {
  std::vector<std::vector<double>> us(works.size());
  std::vector<decltype(device.capture(works[0]))> graphs;
  for (const auto& work : works) {
    work();
    device.wait();
    graphs.push_back(device.capture([&] {
      for (int i = 0; i < kCalls; ++i) work();
    }));
  }
  for (int turn = -1; turn < turns; ++turn) {
    for (size_t i = 0; i < works.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      graphs[i]->replay();
      device.wait();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      if (turn >= 0) us[i].push_back(took.count() / kCalls);
    }
  }
  std::vector<double> medians;
  for (auto& list : us) {
    std::sort(list.begin(), list.end());
    medians.push_back(list[list.size() / 2]);
  }
  return medians;
}

void measure(Device& device, const Shape& s, int turns) {
  Bench bench(device, s);
  const auto us = take_turns(device,
                             {[&] { bench.forward(true); }, [&] { bench.forward(false); },
                              [&] { bench.backward(true); }, [&] { bench.backward(false); }},
                             turns);
  const double plain = us[0] + us[2], own = us[1] + us[3];
  fmt::print("{:34} {:7.1f} {:7.1f} {:8.1f} | {:7.1f} {:7.1f} {:8.1f} | {:5.2f} {}\n", s.name,
             us[0], us[2], plain, us[1], us[3], own, plain / own,
             bench.is_cudnn() ? "" : "NOT cuDNN");
}

}  // namespace

int main(int argc, char** argv) {
  using Kind = AttentionBias::Kind;
  const int turns = argc > 1 ? std::max(1, std::stoi(argv[1])) : 11;
  const std::string wanted = argc > 2 ? argv[2] : "";
  const Shape shapes[] = {
      {"bloomz-1b1 8x512 D96 ALiBi", 8, 512, 512, 16, 16, 96, true, Kind::kAlibi},
      {"t5-3b encoder 8x512 D128 table", 8, 512, 512, 32, 32, 128, false, Kind::kRelative},
      {"t5-3b decoder 8x128 D128 table", 8, 128, 128, 32, 32, 128, true, Kind::kRelative},
      {"t5-3b cross 8x128x512 D128", 8, 128, 512, 32, 32, 128, false},
      {"t5-3b encoder, dropout 0.1", 8, 512, 512, 32, 32, 128, false, Kind::kRelative, 0.1},
      {"t5-3b decoder, dropout 0.1", 8, 128, 128, 32, 32, 128, true, Kind::kRelative, 0.1},
      {"t5-3b cross, dropout 0.1", 8, 128, 512, 32, 32, 128, false, Kind::kNone, 0.1},
      {"Qwen2.5-0.5B 8x512 D64 dropout", 8, 512, 512, 14, 2, 64, true, Kind::kNone, 0.1},
      {"Qwen2.5-0.5B 8x1024 D64 dropout", 8, 1024, 1024, 14, 2, 64, true, Kind::kNone, 0.1},
      {"Qwen2.5-0.5B 8x1024 D64 plain", 8, 1024, 1024, 14, 2, 64, true},
      {"D64 8x2048x16 dropout", 8, 2048, 2048, 16, 16, 64, true, Kind::kNone, 0.1},
      {"D64 8x2048x16 ALiBi", 8, 2048, 2048, 16, 16, 64, true, Kind::kAlibi},
      {"D128 8x1024x16 ALiBi", 8, 1024, 1024, 16, 16, 128, true, Kind::kAlibi},
      {"D128 4x2048x16 ALiBi", 4, 2048, 2048, 16, 16, 128, true, Kind::kAlibi},
      {"D128 4x2048x16 dropout", 4, 2048, 2048, 16, 16, 128, true, Kind::kNone, 0.1},
      {"D128 4x2048x28/4 plain", 4, 2048, 2048, 28, 4, 128, true},
  };
  fmt::print(
      "us (forward, backward, both)        cuDNN, plain             |  built-in                 | "
      "cuDNN / built-in\n");
  const auto device = open_cuda_device(0);
  for (const Shape& s : shapes) {
    if (std::string(s.name).find(wanted) != std::string::npos) measure(*device, s, turns);
  }
  return 0;
}
