// planning/gpu_speeds.cpp: products and attention of the sizes of a model with half a billion
// parameters.
#include "planning/gpu_speeds.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "exec/executor.h"
#include "exec/op_binding.h"
#include "kernel/gpu/cuda_options.h"
#include "kernel/packed_qkv.h"
#include "planning/repeat.h"

namespace weft {
namespace {

constexpr double kGpuSecondsEach = 0.5;
constexpr int kRounds = 5;
constexpr double kNodeUs = 1.0;  // between the end of a kernel and the start of the next

// The time of one call: the best of kRounds means, over kGpuSecondsEach in all, after warm-up.
// *spread becomes the maximum spread.
template <typename Fn>
double best_gpu_seconds(Device* device, const Fn& fn, double* spread) {
  using Clock = std::chrono::steady_clock;
  const auto run = [&](int times) {
    device->wait();
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) fn();
    device->wait();
    return std::chrono::duration<double>(Clock::now() - start).count() / times;
  };
  const double once = (run(1), run(3));
  const int times = std::max(3, static_cast<int>(kGpuSecondsEach / kRounds / once));
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
  const double seconds = best_gpu_seconds(
      device, [&] { kernels.gemm(context, g); }, spread);
  return 2.0 * static_cast<double>(M * N * K) / seconds * 1e-12;
}

// The kind of rows. Padding that attends (there is none) and dropout always use the built-in
// kernel, never cuDNN.
enum class Rows { kWhole, kPacked, kBuiltin, kDropped };

double attention_tflops(const Kernels& kernels, Device* device, Dtype dtype, Rows rows,
                        double* spread) {
  const int64_t B = 8, T = 1024, H = 14, G = 2, D = 64, size = dtype_bytes(dtype);
  const int64_t qkv = B * T * (H + 2 * G) * D, out = B * T * H * D;
  AttentionArgs f{};
  AttentionBackwardArgs b{};
  std::vector<int32_t> positions(static_cast<size_t>(B * T)), lengths(static_cast<size_t>(B), T);
  for (AttentionOperands* a : std::initializer_list<AttentionOperands*>{&f, &b}) {
    a->B = B;
    a->T = T;
    a->H = H;
    a->G = G;
    a->D = D;
    a->dtype = dtype;
    a->scale = 0.125f;
    set_packed_qkv(a, nullptr);
    if (rows == Rows::kDropped) a->dropout = {.rate = 0.1, .seed = 1};
    // Waits until they are copied.
    a->source_lengths = lengths.data();
    if (rows != Rows::kBuiltin) a->lengths = a->source_lengths;
    if (rows == Rows::kPacked) a->positions = a->source_positions = positions.data();
  }
  const size_t workspace =
      std::max(kernels.attention_workspace(f, 1), kernels.attention_backward_workspace(b, 1));
  const int64_t small = 1024 + align_up(B * T * 4) + align_up(B * 16);
  const Arena arena(
      (2 * qkv + 2 * out) * size + B * H * T * 4 + small + static_cast<int64_t>(workspace), device);
  std::byte* at = arena.data();
  const auto take = [&](int64_t bytes) { return std::exchange(at, at + align_up(bytes)); };
  fill(device, at, dtype, qkv + 2 * out);
  std::byte* packed = take(qkv * size);
  set_packed_qkv(&f, packed);
  set_packed_qkv(&b, packed);
  b.dout = contiguous_heads<const void>(take(out * size), T, H, D);
  f.out = contiguous_heads<void>(take(out * size), T, H, D);
  b.out = contiguous_heads<const void>(f.out.data, T, H, D);
  set_packed_gradient(&b, take(qkv * size));
  f.lse = reinterpret_cast<float*>(take(B * H * T * 4));
  b.lse = f.lse;
  const auto put = [&](const auto& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof values[0]);
    std::byte* there = take(bytes);
    device->write(there, values.data(), bytes);
    return there;
  };
  f.source_lengths = b.source_lengths = reinterpret_cast<const int32_t*>(put(lengths));
  if (rows != Rows::kBuiltin) f.lengths = b.lengths = f.source_lengths;
  if (rows == Rows::kPacked) {  // of one segment: the work of whole rows
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<int32_t>(i % static_cast<size_t>(T));
    f.positions = b.positions = reinterpret_cast<const int32_t*>(put(positions));
    f.source_positions = b.source_positions = f.positions;
  }
  if (rows == Rows::kDropped) {
    f.dropout.rows =
        reinterpret_cast<const int64_t*>(put(std::vector<int64_t>(static_cast<size_t>(2 * B), 1)));
    b.dropout = f.dropout;
  }
  const Context context{nullptr, at, workspace, device->stream()};
  const auto both = [&] {
    kernels.attention(context, f);
    kernels.attention_backward(context, b);
  };
  const double seconds = best_gpu_seconds(device, both, spread);
  return 7.0 * static_cast<double>(B * T * T * H * D) / seconds *
         1e-12;  // as counted by node_flops
}

double copy_speed(Device* device, double* spread) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const Arena arena(2 * kBytes, device);
  const auto copy = [&] { device->copy(arena.data(), arena.data() + kBytes, kBytes); };
  const double seconds = best_gpu_seconds(device, copy, spread);
  return 2.0 * static_cast<double>(kBytes) / seconds * 1e-9;
}

// Restored at the end.
class Tf32Scope {
 public:
  Tf32Scope() { set_tf32(true); }
  ~Tf32Scope() { set_tf32(false); }
  Tf32Scope(const Tf32Scope&) = delete;
  Tf32Scope& operator=(const Tf32Scope&) = delete;
};

struct GpuNumber {
  const char* key;
  double GpuSpeeds::*field;
  bool may_be_missing = false;  // then 0
};
constexpr GpuNumber kGpuNumbers[] = {
    {"tflops_fp32", &GpuSpeeds::tflops_fp32},
    {"tflops_bf16", &GpuSpeeds::tflops_bf16},
    {"tflops_attention_fp32", &GpuSpeeds::tflops_attention_fp32},
    {"tflops_attention_bf16", &GpuSpeeds::tflops_attention_bf16},
    {"copy_gb_per_s", &GpuSpeeds::copy_gb_per_s},
    {"tflops_attention_packed_bf16", &GpuSpeeds::tflops_attention_packed_bf16, true},
    // The key that stored files have.
    {"tflops_attention_own_bf16", &GpuSpeeds::tflops_attention_builtin_bf16, true},
    {"tflops_attention_dropout_fp32", &GpuSpeeds::tflops_attention_dropout_fp32, true},
    {"tflops_attention_dropout_bf16", &GpuSpeeds::tflops_attention_dropout_bf16, true},
    {"tflops_tf32", &GpuSpeeds::tflops_tf32, true},
};

double known_or(double speed, double other) { return speed > 0 ? speed : other; }

double attention_speed(Cost::Unit unit, bool low, const GpuSpeeds& s) {
  const double whole = low ? s.tflops_attention_bf16 : s.tflops_attention_fp32;
  const double builtin = low ? known_or(s.tflops_attention_builtin_bf16, whole) : whole;
  switch (unit) {
    case Cost::Unit::kAttentionPacked:
      return known_or(s.tflops_attention_packed_bf16, whole);
    case Cost::Unit::kAttentionBuiltin:
      return builtin;
    case Cost::Unit::kAttentionDropout:
      return known_or(low ? s.tflops_attention_dropout_bf16 : s.tflops_attention_dropout_fp32,
                      builtin);
    default:
      return whole;
  }
}

// s: its tflops_fp32 are those of the requested products.
double node_seconds(const View& view, const Node& node, Dtype compute, const GpuSpeeds& s) {
  const bool low = compute != Dtype::kF32;  // fp16 is as fast as bf16
  const Cost cost = binding_of(node.op).cost(view, node);
  const double speed = cost.unit != Cost::Unit::kProducts ? attention_speed(cost.unit, low, s)
                       : low                              ? s.tflops_bf16
                                                          : s.tflops_fp32;
  return cost.flops / speed * 1e-12 + cost.bytes / s.copy_gb_per_s * 1e-9;
}

}  // namespace

GpuSpeeds measure_gpu_speeds(const Kernels& kernels, Device* device, Dtype narrow) {
  GpuSpeeds s;
  s.gpu = device->name();
  s.tflops_fp32 = product_tflops(kernels, device, Dtype::kF32, &s.spread);
  s.tflops_bf16 = product_tflops(kernels, device, narrow, &s.spread);
  const auto attention = [&](Dtype dtype, Rows rows) {
    return attention_tflops(kernels, device, dtype, rows, &s.spread);
  };
  s.tflops_attention_fp32 = attention(Dtype::kF32, Rows::kWhole);
  s.tflops_attention_bf16 = attention(narrow, Rows::kWhole);
  s.tflops_attention_packed_bf16 = attention(narrow, Rows::kPacked);
  s.tflops_attention_builtin_bf16 = attention(narrow, Rows::kBuiltin);
  s.tflops_attention_dropout_fp32 = attention(Dtype::kF32, Rows::kDropped);
  s.tflops_attention_dropout_bf16 = attention(narrow, Rows::kDropped);
  s.copy_gb_per_s = copy_speed(device, &s.spread);
  if (narrow == Dtype::kBf16) {  // TF32 was introduced with it
    const Tf32Scope tf32;
    s.tflops_tf32 = product_tflops(kernels, device, Dtype::kF32, &s.spread);
  }
  return s;
}

Json gpu_speeds_to_json(const GpuSpeeds& speeds) {
  Json json(Json::Object{{"gpu", speeds.gpu}});
  for (const GpuNumber& n : kGpuNumbers) {
    if (!n.may_be_missing || speeds.*n.field > 0) json.set(n.key, speeds.*n.field);
  }
  return json;
}

std::filesystem::path gpu_speeds_path() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "speeds-gpu.json";
}

void save_gpu_speeds(const GpuSpeeds& speeds, const std::filesystem::path& path) {
  require(!path.empty(), "neither XDG_CACHE_HOME nor HOME is set to store speeds");
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  require(!error, "cannot create the folder {}: {}", path.parent_path().string(), error.message());
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
    for (const GpuNumber& n : kGpuNumbers) {
      if (n.may_be_missing && !json.find(n.key)) continue;
      s.*n.field = json.at(n.key).as_number();
      require(s.*n.field > 0, "{} is not positive", n.key);
    }
    if (gpu.empty() || s.gpu == gpu) return s;
  } catch (const Error&) {
    // Damaged or unreadable: ignored.
  }
  return std::nullopt;
}

double estimate_gpu_ms(const Plan& plan, const GpuSpeeds& measured, bool tf32) {
  GpuSpeeds speeds = measured;
  if (tf32 && measured.tflops_tf32 > 0) speeds.tflops_fp32 = measured.tflops_tf32;
  const Graph& graph = plan.graph;
  const auto head = std::find_if(graph.pass.begin(), graph.pass.end(),
                                 [](const Node& n) { return n.op->traits.is_loss; });
  ensure(head != graph.pass.end(), "a plan without a loss");
  const Dtype compute = graph[head->inputs[0]].dtype;
  const Nowhere nowhere(graph);
  const View& view = nowhere.view();
  double seconds = 0;
  for (const Node& n : graph.pass) {
    const double once = node_seconds(view, n, compute, speeds) + kNodeUs * 1e-6;
    seconds += once * (n.run.last_pass_only ? 1 : plan.options.num_passes);
  }
  for (const Node& n : graph.finish) seconds += node_seconds(view, n, compute, speeds);
  return seconds * 1e3;
}

}  // namespace weft
