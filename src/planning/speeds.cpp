// planning/speeds.cpp: a product of a small model's layer size, and a copy larger than the caches.
#include "planning/speeds.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "exec/executor.h"
#include "planning/machine.h"
#include "planning/repeat.h"

namespace weft {
namespace {

constexpr double kSecondsEach = 0.25;

// The shortest time of one call, over kSecondsEach after a warm-up call; *spread becomes the
// maximum spread.
template <typename Fn>
double best_seconds(const Fn& fn, double* spread) {
  using Clock = std::chrono::steady_clock;
  fn();
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  std::vector<double> times;
  const auto start = Clock::now();
  do {
    const auto before = Clock::now();
    fn();
    times.push_back(seconds(Clock::now() - before));
  } while (seconds(Clock::now() - start) < kSecondsEach);
  const Repeated repeated = judge(std::move(times));
  *spread = std::max(*spread, repeated.spread);
  return repeated.best;
}

// C (M, N) = A (M, K) · B^T, as a linear layer runs it.
double product_gflops(const Kernels& kernels, Dtype dtype, int num_threads, double* spread) {
  constexpr int64_t M = 512, N = 1024, K = 512;
  const int64_t width = dtype_bytes(dtype);
  const Arena memory((M * K + N * K + M * N) * width);
  std::byte* a = memory.data();
  std::byte* b = a + M * K * width;
  for (int64_t i = 0; i < M * K + N * K; ++i) {
    store_element(a, dtype, i, static_cast<float>(i % 17 - 8) * 0.125f);
  }
  GemmArgs g{};
  g.M = M;
  g.N = N;
  g.K = K;
  g.dtype = g.c_dtype = dtype;
  g.a = a;
  g.lda = K;
  g.b = {{b}, {N}, 1, K};
  g.b_transposed = true;
  g.c = {{b + N * K * width}, {M}, 1, N};
  ThreadPool pool(num_threads);
  const size_t workspace = kernels.gemm_workspace(g, num_threads);
  const Arena scratch(static_cast<int64_t>(workspace));
  const Context context{&pool, scratch.data(), workspace};
  const double seconds = best_seconds([&] { kernels.gemm(context, g); }, spread);
  return 2.0 * M * N * K / seconds * 1e-9;
}

double copy_gb_per_s(int num_threads, double* spread) {
  constexpr int64_t kBytes = int64_t{96} << 20, kPiece = int64_t{1} << 20;
  const Arena from(kBytes), to(kBytes);
  std::memset(from.data(), 1, static_cast<size_t>(kBytes));
  ThreadPool pool(num_threads);
  const auto copy = [&] {
    pool.run(kBytes / kPiece, [&](int64_t i, int) {
      std::memcpy(to.data() + i * kPiece, from.data() + i * kPiece, size_t{kPiece});
    });
  };
  const double seconds = best_seconds(copy, spread);
  return 2.0 * static_cast<double>(kBytes) / seconds * 1e-9;
}

struct Number {
  const char* key;
  double Speeds::*field;
};
constexpr Number kNumbers[] = {
    {"gflops_fp32", &Speeds::gflops_fp32},         {"gflops_bf16", &Speeds::gflops_bf16},
    {"gflops_fp32_one", &Speeds::gflops_fp32_one}, {"gflops_bf16_one", &Speeds::gflops_bf16_one},
    {"copy_gb_per_s", &Speeds::copy_gb_per_s},
};

Speeds from_json(const Json& json) {
  Speeds s;
  s.cpu_model = json.at("cpu_model").as_string();
  s.level = json.at("level").as_string();
  s.threads = static_cast<int>(json.at("threads").as_int());
  for (const Number& n : kNumbers) {
    s.*n.field = json.at(n.key).as_number();
    require(s.*n.field > 0, "{} is not positive", n.key);
  }
  return s;
}

}  // namespace

Speeds measure_speeds(const Kernels& kernels, int num_threads) {
  Speeds s;
  s.cpu_model = read_machine().cpu_model;
  s.level = kernels.name;
  s.threads = num_threads;
  s.gflops_fp32_one = product_gflops(kernels, Dtype::kF32, 1, &s.spread);
  s.gflops_bf16_one = product_gflops(kernels, Dtype::kBf16, 1, &s.spread);
  s.gflops_fp32 = product_gflops(kernels, Dtype::kF32, num_threads, &s.spread);
  s.gflops_bf16 = product_gflops(kernels, Dtype::kBf16, num_threads, &s.spread);
  s.copy_gb_per_s = copy_gb_per_s(num_threads, &s.spread);
  return s;
}

Json speeds_to_json(const Speeds& speeds) {
  Json json(Json::Object{
      {"cpu_model", speeds.cpu_model}, {"level", speeds.level}, {"threads", speeds.threads}});
  for (const Number& n : kNumbers) json.set(n.key, speeds.*n.field);
  return json;
}

std::filesystem::path speeds_path() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "speeds.json";
}

void save_speeds(const Speeds& speeds, const std::filesystem::path& path) {
  require(!path.empty(), "neither XDG_CACHE_HOME nor HOME is set to store speeds");
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  require(!error, "cannot create the folder {}: {}", path.parent_path().string(), error.message());
  write_file_atomic(path, speeds_to_json(speeds).dump(2) + "\n");
}

std::optional<Speeds> load_speeds(const std::string& level, const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return std::nullopt;
  try {
    Speeds s = from_json(parse_json(read_file(path, 1 << 16), path.string()));
    if (s.level == level && s.cpu_model == read_machine().cpu_model) return s;
  } catch (const Error&) {
    // Damaged or unreadable: ignored; the next --measure rewrites it.
  }
  return std::nullopt;
}

}  // namespace weft
