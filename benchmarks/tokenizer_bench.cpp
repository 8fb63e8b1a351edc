// benchmarks/tokenizer_bench.cpp: MB/s of a tokenizer, row by row as training reads, and load time.
//
//   tokenizer_bench TEXT_FILE TOKENIZER_FOLDER [--threads N]
//
// One JSON object: load_ms, ids of the whole text, mb_per_cpu_s (bytes by the CPU time of all
// threads: other programs' load does not count), wall_s. Median of five passes; a pass is the text
// eight times over, so that thread start-up is negligible. Threads share one tokenizer, and take
// lines in turn.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer.h"

namespace {

constexpr int kPasses = 5, kTimes = 8;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

size_t encode(const weft::Tokenizer& tokenizer, const std::vector<std::string_view>& lines,
              int num_threads) {
  std::atomic<size_t> num_ids{0};
  const auto work = [&](size_t first) {
    std::vector<int32_t> ids;
    size_t count = 0;
    for (size_t i = first; i < lines.size() * kTimes; i += static_cast<size_t>(num_threads)) {
      ids.clear();
      tokenizer.encode(lines[i % lines.size()], true, ids);
      count += ids.size();
    }
    num_ids += count;
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < num_threads; ++t) threads.emplace_back(work, static_cast<size_t>(t));
  work(0);
  for (std::thread& thread : threads) thread.join();
  return num_ids / kTimes;
}

void bench(const std::string& file, const std::string& folder, int num_threads) {
  const std::string text = weft::read_file(file);
  const std::vector<std::string_view> lines = lines_of(text);
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = weft::load_tokenizer(folder);
  const double load_ms = seconds_since(start) * 1e3;
  std::vector<double> cpu, wall;
  size_t num_ids = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    const double before = cpu_seconds();
    num_ids = encode(*tokenizer, lines, num_threads);
    cpu.push_back(cpu_seconds() - before);
    wall.push_back(seconds_since(begin));
  }
  std::sort(cpu.begin(), cpu.end());
  std::sort(wall.begin(), wall.end());
  fmt::print("{{\"load_ms\": {:.1f}, \"ids\": {}, \"mb_per_cpu_s\": {:.2f}, \"wall_s\": {:.5f}}}\n",
             load_ms, num_ids, static_cast<double>(text.size()) * kTimes / 1e6 / cpu[kPasses / 2],
             wall[kPasses / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_threads = argc == 5 && std::string_view(argv[3]) == "--threads";
  if (argc != 3 && !has_threads) {
    fmt::print(stderr, "usage: tokenizer_bench TEXT_FILE TOKENIZER_FOLDER [--threads N]\n");
    return 2;
  }
  try {
    bench(argv[1], argv[2], has_threads ? std::max(1, std::atoi(argv[4])) : 1);
  } catch (const weft::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
}
