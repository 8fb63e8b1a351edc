// planning/speeds.h: this machine's speed of products and copies: measured once, stored for
// estimates.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/threads.h"
#include "kernel/kernels.h"

namespace weft {

struct Speeds {
  std::string cpu_model, level;  // what was measured
  int threads = 1;
  double gflops_fp32 = 0, gflops_bf16 = 0;          // matrix product, all threads
  double gflops_fp32_one = 0, gflops_bf16_one = 0;  // one thread
  double copy_gb_per_s = 0;                         // bytes read plus bytes written, all threads
  double spread = 0;  // the largest of these measurements (planning/repeat.h); not kept
};

// Takes a second or two: the best of several repetitions, since other work only slows things down.
Speeds measure_speeds(const Kernels& kernels, int num_threads);

Json speeds_to_json(const Speeds& speeds);

// ${XDG_CACHE_HOME:-~/.cache}/weft/speeds.json; empty where there is no home.
std::filesystem::path speeds_path();
void save_speeds(const Speeds& speeds, const std::filesystem::path& path = speeds_path());
// None where none were stored, the file is damaged, or it is of another processor or level.
std::optional<Speeds> load_speeds(const std::string& level,
                                  const std::filesystem::path& path = speeds_path());

}  // namespace weft
