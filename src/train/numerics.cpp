// train/numerics.cpp: the fingerprint, and a probe of the kernels.
#include "train/numerics.h"

#include <fmt/ranges.h>

#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/version.h"
#include "exec/update_binding.h"
#include "kernel/gpu/cuda_options.h"
#include "kernel/packed_qkv.h"
#include "optim/optimizer.h"

namespace weft {
namespace {

// Runs kernels over fixed numbers and folds every result into one hash. The sizes are small, and
// past the blocks in which kernels work (64 keys, 512 of K, 2048 of the vocabulary), because that
// is where two versions of a kernel differ.
class Probe {
 public:
  Probe(const Kernels& kernels, Dtype dtype, const std::string& optimizer)
      : k_(kernels), dtype_(dtype), optimizer_(find_optimizer(optimizer)), pool_(1) {
    config_.momentum = 0.9;  // with all its states
  }

  std::string hash() {
    product();
    norm();
    gate();
    attend();
    loss();
    update();
    return hash_hex(hash_);
  }

 private:
  using Bytes = std::vector<std::byte>;

  // Numbers in [-1, 1) that depend on their index and on `salt`.
  Bytes numbers(int64_t n, uint64_t salt, Dtype dtype) const {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint64_t bits = hash_bytes(&i, sizeof i, salt) >> 40;  // 24 of them: exact in fp32
      values[i] = static_cast<float>(bits) / 8388608.0f - 1.0f;
    }
    Bytes out(static_cast<size_t>(n * dtype_bytes(dtype)));
    convert_elements(values.data(), Dtype::kF32, out.data(), dtype, n);
    return out;
  }
  Bytes numbers(int64_t n, uint64_t salt) const { return numbers(n, salt, dtype_); }
  Bytes zeros(int64_t n, Dtype dtype) const {
    return Bytes(static_cast<size_t>(n * dtype_bytes(dtype)));
  }
  void fold(const void* data, size_t bytes) { hash_ = hash_bytes(data, bytes, hash_); }
  void fold(const Bytes& bytes) { fold(bytes.data(), bytes.size()); }

  Context context(size_t bytes) {
    constexpr size_t kAlign = 64;
    space_.resize(bytes + kAlign);
    void* at = space_.data();
    size_t room = space_.size();
    ensure(std::align(kAlign, bytes, at, room) != nullptr, "too little memory for the probe");
    return {&pool_, static_cast<std::byte*>(at), bytes};
  }

  void product() {
    constexpr int64_t kM = 20, kN = 36, kK = 600;
    Bytes a = numbers(kM * kK, 1), b = numbers(kN * kK, 2), c = zeros(kM * kN, Dtype::kF32);
    GemmArgs args{};
    args.M = kM;
    args.N = kN;
    args.K = kK;
    args.dtype = dtype_;
    args.c_dtype = Dtype::kF32;
    args.a = a.data();
    args.lda = kK;
    args.b_transposed = true;
    args.b.part[0] = b.data();
    args.b.rows[0] = kN;
    args.b.count = 1;
    args.b.ld = kK;
    args.c.part[0] = c.data();
    args.c.rows[0] = kM;
    args.c.count = 1;
    args.c.ld = kN;
    k_.gemm(context(k_.gemm_workspace(args, 1)), args);
    fold(c);
  }

  void norm() {
    constexpr int64_t kR = 3, kC = 200;
    const Bytes x = numbers(kR * kC, 3), weight = numbers(kC, 4);
    Bytes y = zeros(kR * kC, dtype_);
    std::vector<float> rstd(kR);
    k_.rmsnorm(context(0), {.R = kR,
                            .C = kC,
                            .dtype = dtype_,
                            .eps = 1e-6f,
                            .x = x.data(),
                            .residual = nullptr,
                            .weight = weight.data(),
                            .sum = nullptr,
                            .y = y.data(),
                            .rstd = rstd.data(),
                            .reuse_rstd = false});
    fold(y);
    fold(rstd.data(), rstd.size() * sizeof(float));
  }

  void gate() {
    constexpr int64_t kR = 3, kF = 100;
    const Bytes gate_up = numbers(kR * 2 * kF, 5);
    Bytes h = zeros(kR * kF, dtype_);
    k_.swiglu(context(0), {kR, kF, dtype_, gate_up.data(), h.data()});
    fold(h);
  }

  void attend() {
    constexpr int64_t kT = 70, kH = 2, kD = 16;
    const Bytes qkv = numbers(kT * (kH + 2) * kD, 6);
    Bytes out = zeros(kT * kH * kD, dtype_);
    const int32_t length = kT;
    std::vector<float> lse(kH * kT);
    AttentionArgs args{};
    args.B = 1;
    args.T = kT;
    args.H = kH;
    args.G = 1;
    args.D = kD;
    args.dtype = dtype_;
    args.scale = 0.25f;
    set_packed_qkv(&args, qkv.data());
    args.lengths = args.source_lengths = &length;
    args.out = contiguous_heads<void>(out.data(), kT, kH, kD);
    args.lse = lse.data();
    k_.attention(context(k_.attention_workspace(args, 1)), args);
    fold(out);
    fold(lse.data(), lse.size() * sizeof(float));
  }

  void loss() {
    constexpr int64_t kR = 2, kV = 2100;
    Bytes logits = numbers(kR * kV, 7);
    const int32_t targets[kR] = {17, 2090};
    float losses[kR] = {};
    k_.cross_entropy(context(0), {kR, kV, dtype_, logits.data(), targets, losses, true});
    fold(logits);
    fold(losses, sizeof losses);
  }

  void update() {
    constexpr int64_t kN = 300;
    constexpr Dtype kF32 = Dtype::kF32;
    Bytes p = numbers(kN, 8), master = numbers(kN, 8, kF32);
    const Bytes grad = numbers(kN, 9, kF32);
    double partials[2] = {};
    k_.squares(context(0), {kN, kF32, grad.data(), partials});
    fold(partials, sizeof partials);
    UpdateInputs u{};
    u.types = {dtype_, kF32};
    u.item = {.n = kN,
              .p = p.data(),
              .master = nullptr,
              .grad = grad.data(),
              .states = {},
              .decay = true};
    if (dtype_ != kF32) u.item.master = reinterpret_cast<float*>(master.data());
    std::vector<Bytes> states(optimizer_.states(config_).size(), zeros(kN, kF32));
    for (size_t i = 0; i < states.size(); ++i) u.item.states[i] = states[i].data();
    binding_of(optimizer_.update)
        .update.one(k_, context(0), u, 0.7, optimizer_.scalars(config_, 1e-3, 1));
    fold(p);
    fold(master);
    for (const Bytes& state : states) fold(state);
  }

  const Kernels& k_;
  Dtype dtype_;
  const Optimizer& optimizer_;
  OptimizerConfig config_;
  ThreadPool pool_;
  Bytes space_;
  uint64_t hash_ = 0;
};

}  // namespace

std::string probe_kernels(const Kernels& kernels, Dtype dtype, const std::string& optimizer) {
  return Probe(kernels, dtype, optimizer).hash();
}

Json numerics_fingerprint(const RunConfig& c, const Layout& layout, const Kernels& kernels,
                          const Device& device) {
  const auto constant = [&](int64_t value) { return layout.is_exact ? Json(value) : Json(); };
  const bool on_gpu = !device.is_host();
  return Json(Json::Object{
      {"weft", kWeftVersion},
      {"version", kNumericsVersion},
      {"kernels", kernels.name},
      {"device", on_gpu ? Json(device.name()) : Json()},
      {"libraries", on_gpu ? Json(cuda_libraries()) : Json()},
      {"precision", c.train.precision},
      {"tf32", on_gpu && c.asks_tf32()},
      {"master_weights", c.has_masters()},
      {"mode", layout.is_exact ? "exact" : "fast"},
      {"exact_tp", constant(layout.exact_tp)},
      {"exact_dp", constant(layout.exact_dp)},
      {"exact_rows", constant(layout.exact_rows)},
      {"probe",
       on_gpu ? Json() : Json(probe_kernels(kernels, c.compute_dtype(), c.train.optimizer.name))}});
}

std::vector<std::string> numerics_differences(const Json& a, const std::string& name_a,
                                              const Json& b, const std::string& name_b) {
  std::vector<std::string> found;
  const auto show = [](const Json* value) {
    if (!value) return std::string("none");
    return value->is_string() ? value->as_string() : value->dump();
  };
  const auto compare = [&](const std::string& key, const Json* left, const Json* right) {
    if (left && right && *left == *right) return;
    found.push_back(fmt::format("{}: {} {}, {} {}", key, show(left), name_a, show(right), name_b));
  };
  for (const auto& [key, value] : a.as_object()) compare(key, &value, b.find(key));
  for (const auto& [key, value] : b.as_object()) {
    if (!a.find(key)) compare(key, nullptr, &value);
  }
  return found;
}

namespace {

// Levels above these only add bf16 instructions: their fp32 is the same.
std::string fp32_level(const std::string& level) {
  if (level == "avx512_bf16" || level == "amx") return "avx512";
  return level == "neon_bf16" ? "neon" : level;
}

bool has_same_kernels(const Json& a, const Json& b) {
  const auto level = [](const Json& numerics) {
    const std::string& name = numerics.at("kernels").as_string();
    const Json* precision = numerics.find("precision");
    return precision && *precision == Json("fp32") ? fp32_level(name) : name;
  };
  return level(a) == level(b);
}

}  // namespace

std::string other_numerics(const Json& state, const Json& now) {
  const Json* stored = state.find("numerics");
  if (!stored || !stored->find("kernels") || now.at("mode") != Json("exact"))
    return "";  // fast mode promises no bits
  Json before(Json::Object{}), after(Json::Object{});
  for (const char* key : {"version", "kernels", "device", "libraries",
                          "probe"}) {  // the rest is checked with the run file
    if (!stored->find(key)) continue;
    if (std::string_view(key) == "kernels" && has_same_kernels(*stored, now)) continue;
    before.set(key, stored->at(key));
    after.set(key, now.at(key));
  }
  const auto found = numerics_differences(before, "in the checkpoint", after, "now");
  return found.empty() ? ""
                       : fmt::format("the bits of this run change at the checkpoint: {}",
                                     fmt::join(found, "; "));
}

void warn_of_other_numerics(const Json& state, const Json& now) {
  if (const std::string text = other_numerics(state, now); !text.empty()) log_warning("{}", text);
}

}  // namespace weft
