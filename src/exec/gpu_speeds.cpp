// exec/gpu_speeds.cpp: products and attention of the size of a model of half a billion parameters.
#include "exec/gpu_speeds.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "exec/executor.h"
#include "exec/repeat.h"
#include "kernel/cuda_options.h"

namespace weft {
namespace {

constexpr double kSecondsEach = 0.5;
constexpr int kRounds = 5;
constexpr double kNodeUs = 1.0;  // between the end of a kernel and the start of the next

// The time of one call: the best of kRounds means, over kSecondsEach in all, after some that warm
// up. The spread goes to *spread where it is larger.
template <typename Fn>
double best_seconds(Device* device, const Fn& fn, double* spread) {
  using Clock = std::chrono::steady_clock;
  const auto run = [&](int times) {
    device->wait();
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) fn();
    device->wait();
    return std::chrono::duration<double>(Clock::now() - start).count() / times;
  };
  const double once = (run(1), run(3));
  const int times = std::max(3, static_cast<int>(kSecondsEach / kRounds / once));
  std::vector<double> rounds;
  for (int r = 0; r < kRounds; ++r) rounds.push_back(run(times));
  const Repeated repeated = judge(std::move(rounds));
  *spread = std::max(*spread, repeated.spread);
  return repeated.best;
}

// Random data: a GPU is faster on zeros.
void fill(Device* device, std::byte* at, Dtype dtype, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  uint64_t state = 1;
  for (float& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) * 0x1p-23f;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(n * dtype_bytes(dtype)));
  convert_elements(values.data(), Dtype::kF32, bytes.data(), dtype, n);
  device->write(at, bytes.data(), static_cast<int64_t>(bytes.size()));
}

// C (M, N) = A (M, K) · B^T.
double product_tflops(const Kernels& kernels, Device* device, Dtype dtype, double* spread) {
  const int64_t M = 4096, N = 4096, K = 2048, size = dtype_bytes(dtype);
  GemmArgs g{};
  g.M = M;
  g.N = N;
  g.K = K;
  g.dtype = g.c_dtype = dtype;
  g.lda = K;
  g.b_transposed = true;
  const size_t workspace = kernels.gemm_workspace(g, 1);
  const Arena arena((M * K + N * K + M * N) * size + static_cast<int64_t>(workspace), device);
  std::byte* b = arena.data() + M * K * size;
  std::byte* c = b + N * K * size;
  fill(device, arena.data(), dtype, M * K + N * K);
  g.a = arena.data();
  g.b = {{b}, {N}, 1, K};
  g.c = {{c}, {M}, 1, N};
  const Context context{nullptr, c + M * N * size, workspace, device->stream()};
  const double seconds = best_seconds(
      device, [&] { kernels.gemm(context, g); }, spread);
  return 2.0 * static_cast<double>(M * N * K) / seconds * 1e-12;
}

double attention_tflops(const Kernels& kernels, Device* device, Dtype dtype, double* spread) {
  const int64_t B = 8, T = 1024, H = 14, G = 2, D = 64, size = dtype_bytes(dtype);
  const int64_t qkv = B * T * (H + 2 * G) * D, out = B * T * H * D;
  AttentionArgs f{};
  f.B = B;
  f.T = T;
  f.H = H;
  f.G = G;
  f.D = D;
  f.dtype = dtype;
  f.scale = 0.125f;
  AttentionBackwardArgs b{};
  b.B = B;
  b.T = T;
  b.H = H;
  b.G = G;
  b.D = D;
  b.dtype = dtype;
  b.scale = f.scale;
  const size_t workspace =
      std::max(kernels.attention_workspace(f, 1), kernels.attention_backward_workspace(b, 1));
  const Arena arena(
      (2 * qkv + 2 * out) * size + B * H * T * 4 + 1024 + static_cast<int64_t>(workspace), device);
  std::byte* at = arena.data();
  const auto take = [&](int64_t bytes) { return std::exchange(at, at + align_up(bytes)); };
  fill(device, at, dtype, qkv + 2 * out);
  f.qkv = b.qkv = take(qkv * size);
  b.dout = take(out * size);
  f.out = take(out * size);
  b.out = f.out;
  b.dqkv = take(qkv * size);
  f.lse = reinterpret_cast<float*>(take(B * H * T * 4));
  b.lse = f.lse;
  const std::vector<int32_t> lengths(B, static_cast<int32_t>(T));
  auto* on_device = reinterpret_cast<int32_t*>(take(B * 4));
  device->write(on_device, lengths.data(), B * 4);
  f.lengths = b.lengths = on_device;
  const Context context{nullptr, at, workspace, device->stream()};
  const auto both = [&] {
    kernels.attention(context, f);
    kernels.attention_backward(context, b);
  };
  const double seconds = best_seconds(device, both, spread);
  return 7.0 * static_cast<double>(B * T * T * H * D) / seconds * 1e-12;  // as node_flops counts
}

double copy_speed(Device* device, double* spread) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const Arena arena(2 * kBytes, device);
  const auto copy = [&] { device->copy(arena.data(), arena.data() + kBytes, kBytes); };
  const double seconds = best_seconds(device, copy, spread);
  return 2.0 * static_cast<double>(kBytes) / seconds * 1e-9;
}

// Off again at the end.
class Tf32Scope {
 public:
  Tf32Scope() { set_tf32(true); }
  ~Tf32Scope() { set_tf32(false); }
  Tf32Scope(const Tf32Scope&) = delete;
  Tf32Scope& operator=(const Tf32Scope&) = delete;
};

struct Number {
  const char* key;
  double GpuSpeeds::*field;
  bool may_be_missing = false;  // and is 0 then
};
constexpr Number kNumbers[] = {
    {"tflops_fp32", &GpuSpeeds::tflops_fp32},
    {"tflops_bf16", &GpuSpeeds::tflops_bf16},
    {"tflops_attention_fp32", &GpuSpeeds::tflops_attention_fp32},
    {"tflops_attention_bf16", &GpuSpeeds::tflops_attention_bf16},
    {"copy_gb_per_s", &GpuSpeeds::copy_gb_per_s},
    {"tflops_tf32", &GpuSpeeds::tflops_tf32, true},
};

bool is_attention(Op op) { return op == Op::kAttention || op == Op::kAttentionGrad; }

// Bytes that a node reads and writes, each value once.
double touched(const Graph& graph, const Node& node) {
  std::set<int> seen;
  double bytes = 0;
  for (const std::vector<Ref>* refs : {&node.inputs, &node.outputs}) {
    for (const Ref r : *refs) {
      if (r && (seen.insert(r.id).second || refs == &node.outputs))
        bytes += static_cast<double>(value_bytes(graph[r]));
    }
  }
  return bytes;
}

// s: its tflops_fp32 are those of the products that are asked for.
double node_seconds(const Graph& graph, const Node& node, Dtype compute, const GpuSpeeds& s) {
  const bool low = compute != Dtype::kF32;  // fp16 is as fast as bf16
  const double flops = node_flops(graph, node);
  if (is_attention(node.op))
    return flops / (low ? s.tflops_attention_bf16 : s.tflops_attention_fp32) * 1e-12;
  const double products = flops / (low ? s.tflops_bf16 : s.tflops_fp32) * 1e-12;
  if (node.op == Op::kHeadLoss || node.op == Op::kHeadLossGrad) {
    // The softmax reads the logits twice and writes their gradient.
    const Shape& x = graph[node.inputs[0]].shape;
    double columns = 0;
    for (int p = 0; p < node.attr.parts; ++p)
      columns += static_cast<double>(graph[node.inputs[1 + static_cast<size_t>(p)]].shape[0]);
    const double logits =
        static_cast<double>(x[0] * x[1]) * columns * static_cast<double>(dtype_bytes(compute));
    return products + 3 * logits / s.copy_gb_per_s * 1e-9;
  }
  if (flops > 0) return products;
  // Of a table it touches only the rows of the tokens.
  if (node.op == Op::kEmbedding || node.op == Op::kEmbeddingGrad) return 0;
  return touched(graph, node) / s.copy_gb_per_s * 1e-9;
}

}  // namespace

GpuSpeeds measure_gpu_speeds(const Kernels& kernels, Device* device, Dtype narrow) {
  GpuSpeeds s;
  s.gpu = device->name();
  s.tflops_fp32 = product_tflops(kernels, device, Dtype::kF32, &s.spread);
  s.tflops_bf16 = product_tflops(kernels, device, narrow, &s.spread);
  s.tflops_attention_fp32 = attention_tflops(kernels, device, Dtype::kF32, &s.spread);
  s.tflops_attention_bf16 = attention_tflops(kernels, device, narrow, &s.spread);
  s.copy_gb_per_s = copy_speed(device, &s.spread);
  if (narrow == Dtype::kBf16) {  // TF32 came with it
    const Tf32Scope tf32;
    s.tflops_tf32 = product_tflops(kernels, device, Dtype::kF32, &s.spread);
  }
  return s;
}

Json gpu_speeds_to_json(const GpuSpeeds& speeds) {
  Json json(Json::Object{{"gpu", speeds.gpu}});
  for (const Number& n : kNumbers) {
    if (!n.may_be_missing || speeds.*n.field > 0) json.set(n.key, speeds.*n.field);
  }
  return json;
}

std::filesystem::path gpu_speeds_path() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "speeds-gpu.json";
}

void save_gpu_speeds(const GpuSpeeds& speeds, const std::filesystem::path& path) {
  require(!path.empty(), "neither XDG_CACHE_HOME nor HOME says where speeds are kept");
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  require(!error, "cannot make the folder {}: {}", path.parent_path().string(), error.message());
  write_file_atomic(path, gpu_speeds_to_json(speeds).dump(2) + "\n");
}

std::optional<GpuSpeeds> load_gpu_speeds(const std::string& gpu,
                                         const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return std::nullopt;
  try {
    const Json json = parse_json(read_file(path, 1 << 16), path.string());
    GpuSpeeds s;
    s.gpu = json.at("gpu").as_string();
    for (const Number& n : kNumbers) {
      if (n.may_be_missing && !json.find(n.key)) continue;
      s.*n.field = json.at(n.key).as_number();
      require(s.*n.field > 0, "{} is not positive", n.key);
    }
    if (gpu.empty() || s.gpu == gpu) return s;
  } catch (const Error&) {
    // Damaged or not to be read: as good as not there.
  }
  return std::nullopt;
}

double estimate_gpu_ms(const Plan& plan, const GpuSpeeds& measured, bool tf32) {
  GpuSpeeds speeds = measured;
  if (tf32 && measured.tflops_tf32 > 0) speeds.tflops_fp32 = measured.tflops_tf32;
  const Graph& graph = plan.graph;
  const auto head = std::find_if(graph.pass.begin(), graph.pass.end(), [](const Node& n) {
    return n.op == Op::kHeadLossGrad || n.op == Op::kHeadLoss;
  });
  ensure(head != graph.pass.end(), "a plan without a loss");
  const Dtype compute = graph[head->inputs[0]].dtype;
  double seconds = 0;
  for (const Node& n : graph.pass) {
    const double once = node_seconds(graph, n, compute, speeds) + kNodeUs * 1e-6;
    seconds += once * (n.attr.last_pass_only ? 1 : plan.options.num_passes);
  }
  for (const Node& n : graph.finish) seconds += node_seconds(graph, n, compute, speeds);
  return seconds * 1e3;
}

}  // namespace weft
