// benchmarks/data_bench.cpp: tokens/s and memory of data loading: a file tokenized and served.
//
//   data_bench FILE TOKENIZER_FOLDER CACHE_FOLDER [THREADS]
//
// First time to the first batch, then all rows tokenized (the cache is made), then served in
// shuffled batches from the cache; the largest resident memory of the process after each.
#include <fmt/core.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "data/batches.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double peak_mb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1e3;
}

void run(const std::string& file, const std::string& folder, const std::string& cache,
         int num_threads) {
  const auto tokenizer = weft::load_tokenizer(folder);
  weft::DataConfig config;
  config.seq_length = 2048;
  weft::StreamOptions options;
  options.global_batch = 64;
  options.cache.folder = cache;
  options.cache.num_threads = num_threads;
  auto start = Clock::now();
  const auto rows = weft::open_rows({file}, "auto", "bench", weft::columns_used(config));
  weft::BatchStream stream(config, *rows, *tokenizer, options);
  weft::Batch batch;
  stream.next(batch);
  fmt::print("{} rows; first batch after {:.2f} s\n", rows->size(), seconds_since(start));
  stream.count_kept_rows();
  const double made_s = seconds_since(start), made_cpu = cpu_seconds();
  fmt::print("tokenized in {:.1f} s, {:.1f} s of CPU, {} threads; peak {:.0f} MB\n", made_s,
             made_cpu, num_threads, peak_mb());
  start = Clock::now();
  int64_t tokens = 0;
  const double before = cpu_seconds();
  while (!batch.is_epoch_end) {
    stream.next(batch);
    tokens += batch.tokens;
  }
  const double served_s = seconds_since(start), served_cpu = cpu_seconds() - before;
  const double all = static_cast<double>(tokens);
  fmt::print(
      "{} tokens: tokenized {:.2f} M tokens/s per core (CPU), served {:.1f} M tokens/s, {:.1f} per "
      "core; "
      "peak {:.0f} MB\n",
      tokens, all / made_cpu / 1e6, all / served_s / 1e6, all / served_cpu / 1e6, peak_mb());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: data_bench FILE TOKENIZER_FOLDER CACHE_FOLDER [THREADS]\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argc > 4 ? std::atoi(argv[4]) : 2);
  } catch (const weft::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
