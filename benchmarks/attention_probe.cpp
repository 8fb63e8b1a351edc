// benchmarks/attention_probe.cpp: attention on a GPU: cuDNN and the built-in kernel, checked and
// timed.
//
//   attention_probe check|speed
//
// check: what kernel/cuda/attention_cudnn.cpp assumes about cuDNN. speed: milliseconds and TFLOP/s
// (causal: half of the products count) of each variant. cuDNN's real workspaces are printed by
//   CUDNN_FRONTEND_LOG_INFO=1 CUDNN_FRONTEND_LOG_FILE=stdout attention_probe speed | grep workspace
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/ops.h"
#include "kernel/packed_qkv.h"
#include "tensor/device.h"

namespace {

using namespace weft;  // NOLINT(google-build-using-namespace): a program of one file
using cuda::AttentionSettings;

struct Sizes {
  const char* name;
  int64_t B, T, H, G, D;
  int64_t width() const { return (H + 2 * G) * D; }
};

constexpr AttentionSettings kCudnn = {};
constexpr AttentionSettings kMasked = {.padding_mask = true};
constexpr AttentionSettings kFree = {.deterministic = false};
constexpr AttentionSettings kBuiltin = {.cudnn = false};

// All tensors of one size on the device, filled with noise; lengths as given.
class Tensors {
 public:
  // segment: how long the segments of packed rows are; 0: rows are not packed.
  Tensors(Device& device, const Sizes& s, const std::vector<int32_t>& lengths, int64_t segment = 0)
      : device_(device), s_(s), pool_(1) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto noise = [&](int64_t n) {
      std::vector<Bf16> values(static_cast<size_t>(n));
      for (Bf16& v : values) v = to_bf16(normal(random));
      std::byte* at = allocate(2 * n);
      device_.write(at, values.data(), 2 * n);
      return at;
    };
    const int64_t tokens = s.B * s.T;
    qkv = noise(tokens * s.width());
    dout = noise(tokens * s.H * s.D);
    out = allocate(2 * tokens * s.H * s.D);
    dqkv = allocate(2 * tokens * s.width());
    lse = reinterpret_cast<float*>(allocate(4 * tokens * s.H));
    lengths_ = reinterpret_cast<int32_t*>(allocate(4 * s.B));
    device_.write(lengths_, lengths.data(), 4 * s.B);
    if (segment > 0) {
      std::vector<int32_t> positions(static_cast<size_t>(tokens));
      for (int64_t i = 0; i < tokens; ++i) {
        positions[static_cast<size_t>(i)] = static_cast<int32_t>(i % s.T % segment);
      }
      positions_ = reinterpret_cast<int32_t*>(allocate(4 * tokens));
      device_.write(positions_, positions.data(), 4 * tokens);
    }
    bytes_ = std::max(cuda::attention_workspace(forward_args(), 1),
                      cuda::attention_backward_workspace(backward_args(), 1));
    workspace_ = allocate(static_cast<int64_t>(bytes_));
  }
  ~Tensors() {
    for (const auto& [at, bytes] : taken_) device_.free(at, bytes);
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  AttentionArgs forward_args() const {
    AttentionArgs args;
    set_common(&args);
    args.out = contiguous_heads<void>(out, s_.T, s_.H, s_.D);
    args.lse = lse;
    return args;
  }
  AttentionBackwardArgs backward_args() const {
    AttentionBackwardArgs args;
    set_common(&args);
    args.out = contiguous_heads<const void>(out, s_.T, s_.H, s_.D);
    args.dout = contiguous_heads<const void>(dout, s_.T, s_.H, s_.D);
    args.lse = lse;
    set_packed_gradient(&args, dqkv);
    return args;
  }
  void forward(const AttentionSettings& settings) {
    cuda::attention_settings() = settings;
    cuda::attention(context(), forward_args());
  }
  void backward(const AttentionSettings& settings) {
    cuda::attention_settings() = settings;
    cuda::attention_backward(context(), backward_args());
  }
  std::vector<uint16_t> read(const void* from, int64_t n) const {
    std::vector<uint16_t> values(static_cast<size_t>(n));
    device_.wait();
    device_.read(values.data(), from, 2 * n);
    return values;
  }
  std::vector<uint16_t> read_out() const { return read(out, s_.B * s_.T * s_.H * s_.D); }
  std::vector<uint16_t> read_dqkv() const { return read(dqkv, s_.B * s_.T * s_.width()); }

  std::byte *qkv, *dout, *out, *dqkv;
  float* lse;

 private:
  void set_common(AttentionOperands* args) const {
    args->B = s_.B;
    args->T = s_.T;
    args->H = s_.H;
    args->G = s_.G;
    args->D = s_.D;
    args->dtype = Dtype::kBf16;
    args->scale = 1.0f / std::sqrt(static_cast<float>(s_.D));
    set_packed_qkv(args, qkv);
    args->lengths = args->source_lengths = lengths_;
    args->positions = args->source_positions = positions_;
  }
  Context context() { return {&pool_, workspace_, bytes_, device_.stream()}; }
  std::byte* allocate(int64_t bytes) {
    std::byte* at = device_.allocate(bytes);
    taken_.emplace_back(at, bytes);
    return at;
  }
  Device& device_;
  Sizes s_;
  ThreadPool pool_;
  int32_t* lengths_ = nullptr;
  int32_t* positions_ = nullptr;
  std::byte* workspace_ = nullptr;
  size_t bytes_ = 0;
  std::vector<std::pair<std::byte*, int64_t>> taken_;
};

using Bits = std::vector<uint16_t>;

double difference(const Bits& a, const Bits& b) {
  double most = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = to_float(Bf16{a[i]}) - to_float(Bf16{b[i]});
    if (!(std::abs(d) <= most)) most = std::isnan(d) ? INFINITY : std::abs(d);
  }
  return most;
}

void say(const char* what, double got, double most) {
  fmt::print("  {:58} {:9.2g} {}\n", what, got, got <= most ? "ok" : "NOT OK");
}

// segment: as in Tensors.
void check_sizes(Device& device, const Sizes& s, int64_t segment = 0) {
  fmt::print("{}: B {} T {} H {} G {} D {}", s.name, s.B, s.T, s.H, s.G, s.D);
  fmt::print("{}\n", segment > 0 ? fmt::format(", segments of {}", segment) : "");
  std::vector<int32_t> lengths(static_cast<size_t>(s.B), static_cast<int32_t>(s.T));
  lengths[0] = static_cast<int32_t>(s.T / 3);
  Tensors all(device, s, lengths, segment);
  all.forward(kBuiltin);
  const Bits builtin_out = all.read_out();
  all.backward(kBuiltin);
  const Bits builtin_dqkv = all.read_dqkv();
  all.forward(kMasked);
  const Bits masked_out = all.read_out();
  all.backward(kMasked);
  const Bits masked_dqkv = all.read_dqkv();
  all.forward(kCudnn);
  const Bits out = all.read_out();
  all.backward(kCudnn);
  const Bits dqkv = all.read_dqkv();
  // In rows of one tile the two compute the same.
  if (s.T >= 256)
    say("cuDNN is used: other bits than the built-in kernel's", out == builtin_out, 0.0);
  say("out of padded rows: built-in kernel", difference(out, builtin_out), 0.05);
  say("out of padded rows: cuDNN's mask", difference(out, masked_out), 0.05);
  say("dqkv of padded rows: built-in kernel", difference(dqkv, builtin_dqkv), 0.1);
  say("dqkv of padded rows: cuDNN's mask", difference(dqkv, masked_dqkv), 0.1);
  all.backward(kCudnn);
  say("dqkv twice: bits", all.read_dqkv() != dqkv, 0.0);
  const auto captured = device.capture([&] {
    all.forward(kCudnn);
    all.backward(kCudnn);
  });
  captured->replay();
  say("recorded and replayed: bits", all.read_out() != out || all.read_dqkv() != dqkv, 0.0);
  // One row of the batch alone.
  Sizes one = s;
  one.B = 1;
  Tensors row(device, one, {static_cast<int32_t>(s.T)}, segment);
  const int64_t last = s.B - 1, q = s.T * s.width(), o = s.T * s.H * s.D;
  device.write(row.qkv, all.read(all.qkv, s.B * q).data() + last * q, 2 * q);
  device.write(row.dout, all.read(all.dout, s.B * o).data() + last * o, 2 * o);
  row.forward(kCudnn);
  row.backward(kCudnn);
  say("a row alone: bits of out",
      std::memcmp(row.read_out().data(), out.data() + last * o, static_cast<size_t>(2 * o)) != 0,
      0.0);
  say("a row alone: bits of dqkv",
      std::memcmp(row.read_dqkv().data(), dqkv.data() + last * q, static_cast<size_t>(2 * q)) != 0,
      0.0);
}

double time_ms(Device& device, const std::function<void()>& work) {
  work();
  device.wait();
  const auto captured = device.capture(work);
  std::vector<double> ms;
  for (int i = 0; i < 21; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    captured->replay();
    device.wait();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    ms.push_back(took.count());
  }
  std::sort(ms.begin(), ms.end());
  return ms[10];
}

void time_sizes(Device& device, const Sizes& s) {
  fmt::print("{}: B {} T {} H {} G {} D {}\n", s.name, s.B, s.T, s.H, s.G, s.D);
  Tensors all(device, s, std::vector<int32_t>(static_cast<size_t>(s.B), static_cast<int32_t>(s.T)));
  const double flop = 2.0 * static_cast<double>(s.B * s.H * s.D) * static_cast<double>(s.T * s.T);
  const auto line = [&](const char* name, const AttentionSettings& settings) {
    const double forward = time_ms(device, [&] { all.forward(settings); });
    const double backward = time_ms(device, [&] { all.backward(settings); });
    fmt::print("  {:26} forward {:7.3f} ms {:4.0f} TFLOP/s  backward {:7.3f} ms {:4.0f} TFLOP/s\n",
               name, forward, flop / forward / 1e9, backward, 2.5 * flop / backward / 1e9);
  };
  line("cuDNN", kCudnn);
  line("cuDNN, its padding mask", kMasked);
  line("cuDNN, not deterministic", kFree);
  line("built-in kernel", kBuiltin);
  for (const int64_t segment : {s.T, s.T / 4, s.T / 16}) {
    Tensors packed(device, s,
                   std::vector<int32_t>(static_cast<size_t>(s.B), static_cast<int32_t>(s.T)),
                   segment);
    for (const AttentionSettings& settings : {kCudnn, kBuiltin}) {
      fmt::print("  segments of {:5}, {:10} forward {:7.3f} ms  backward {:7.3f} ms\n", segment,
                 settings.cudnn ? "cuDNN" : "built-in kernel",
                 time_ms(device, [&] { packed.forward(settings); }),
                 time_ms(device, [&] { packed.backward(settings); }));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "check" && mode != "speed") {
    fmt::print("usage: attention_probe check|speed\n");
    return 2;
  }
  const auto device = open_cuda_device(0);
  const Sizes small[] = {{"small", 3, 40, 4, 2, 16},
                         {"odd T", 2, 333, 6, 2, 64},
                         {"D 80", 2, 200, 4, 4, 80},
                         {"D 128", 2, 1024, 8, 2, 128},
                         {"pieces of rows", 12, 2048, 28, 4, 64},
                         {"pieces of groups", 2, 8192, 28, 4, 128}};
  const Sizes large[] = {{"Qwen2.5-0.5B", 8, 1024, 14, 2, 64}, {"Qwen2-7B", 4, 2048, 28, 4, 128}};
  if (mode == "check") {
    for (const Sizes& s : small) check_sizes(*device, s);
    for (const Sizes& s : large) check_sizes(*device, s);
    for (const Sizes& s : small) {
      if (s.T < 8192) check_sizes(*device, s, 37);
    }
    for (const Sizes& s : large) check_sizes(*device, s, 300);
  } else {
    for (const Sizes& s : large) time_sizes(*device, s);
  }
  return 0;
}
