// planning/machine.cpp: /proc and /sys, any of which may be missing.
#include "planning/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

// The value after the first "key   : ".
std::string field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != key) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t kibibytes(const std::string& meminfo, const std::string& key) {
  std::istringstream value(field(meminfo, key));
  int64_t n = 0;
  value >> n;
  return n * 1024;
}

// "always [madvise] never" -> madvise
std::string chosen_of(const std::string& text) {
  const size_t begin = text.find('['), end = text.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "unknown";
  return text.substr(begin + 1, end - begin - 1);
}

std::vector<std::string> read_gpus() {
  std::vector<std::string> gpus;
  std::error_code none;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    const std::string model = field(slurp(gpu.path() / "information"), "Model");
    gpus.push_back(model.empty() ? "unknown" : model);
  }
  return gpus;
}

}  // namespace

// On Arm the kernel reports numbers, not names; the numbers are those of Arm's reference manuals
// (MIDR).
std::string parse_cpu_model(const std::string& cpuinfo) {
  if (const std::string name = field(cpuinfo, "model name"); !name.empty()) return name;
  const std::string implementer = field(cpuinfo, "CPU implementer");
  const std::string part = field(cpuinfo, "CPU part");
  if (part.empty()) return "unknown";
  constexpr std::pair<const char*, const char*> kArmParts[] = {
      {"0xd08", "Cortex-A72"},  {"0xd0b", "Cortex-A76"},  {"0xd0c", "Neoverse-N1"},
      {"0xd40", "Neoverse-V1"}, {"0xd49", "Neoverse-N2"}, {"0xd4f", "Neoverse-V2"},
  };
  for (const auto& [number, name] : kArmParts) {
    if (implementer == "0x41" && part == number) return name;
  }
  return "Arm implementer " + implementer + " part " + part;
}

std::vector<std::string> parse_cpu_features(const std::string& cpuinfo) {
  constexpr const char* kUseful[] = {"avx2",     "fma",      "f16c",     "bmi2",        "avx512f",
                                     "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "amx_tile",
                                     "amx_bf16", "asimd",    "asimdhp",  "bf16",        "i8mm",
                                     "sve",      "sve2",     "svebf16"};
  std::string all = field(cpuinfo, "flags");
  if (all.empty()) all = field(cpuinfo, "Features");
  std::istringstream words(all);
  std::vector<std::string> found;
  for (std::string word; words >> word;) {
    if (std::find(std::begin(kUseful), std::end(kUseful), word) != std::end(kUseful)) {
      found.push_back(word);
    }
  }
  return found;
}

Machine read_machine() {
  const std::string cpuinfo = slurp("/proc/cpuinfo"), meminfo = slurp("/proc/meminfo");
  Machine m;
  m.cpu_model = parse_cpu_model(cpuinfo);
  m.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  m.cpu_features = parse_cpu_features(cpuinfo);
  m.memory_bytes = kibibytes(meminfo, "MemTotal");
  m.available_bytes = kibibytes(meminfo, "MemAvailable");
  m.huge_pages = chosen_of(slurp("/sys/kernel/mm/transparent_hugepage/enabled"));
  m.gpus = read_gpus();
  return m;
}

}  // namespace weft
