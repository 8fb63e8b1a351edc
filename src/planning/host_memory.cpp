// planning/host_memory.cpp: measured constants, file sizes, and the prefetched batches.
#include "planning/host_memory.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/round_up.h"
#include "data/batches.h"
#include "io/hf_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMib = 1 << 20;

// On aarch64 with Arrow, cairo and gloo: 12 to 13 MiB on rank 0, 3.5 to 4 on the others; code 24
// MiB for a rank, 21 for a supervisor, which share the same pages.
constexpr int64_t kProgramBytes = 4 * kMib;
constexpr int64_t kWriterBytes = 9 * kMib;
constexpr int64_t kCodeBytes = 24 * kMib;
constexpr int64_t kSupervisorBytes = 3 * kMib;

// Measured with 40 and 300 layers of a Llama model, 43 nodes each: 170 to 210 kB more per layer.
// kProgramBytes was measured with 24 layers and fewer, and includes the first nodes.
constexpr int64_t kBytesPerNode = 4000;
constexpr int64_t kNodesOfProgram = 2000;

// Tables and kept files: 17 MiB for Qwen2 (files of 4.2), 7.4 for GPT-2 (1.4), 5 and 7 for T5 (0.8,
// 1.3).
constexpr int64_t kBytesPerFileByte = 4;
constexpr int64_t kAnyTokenizer = 2 * kMib;
constexpr const char* kVocabularies[] = {"tokenizer.json", "vocab.json", "merges.txt",
                                         "spiece.model"};

// Missing files are an error in training; a plan needs none.
int64_t tokenizer_bytes(const RunConfig& c) {
  if (c.data.tokenizer == "bytes") return 0;
  int64_t files = 0;
  std::error_code absent;
  fs::path folder = c.data.tokenizer;
  try {
    if (c.data.tokenizer == "auto") folder = resolve_model_path(c.model.path);
  } catch (const UserError&) {
    return 0;
  }
  const bool has_json = fs::exists(folder / "tokenizer.json", absent);
  for (const char* name : kVocabularies) {
    const auto size = fs::file_size(folder / name, absent);
    if (!absent) files += static_cast<int64_t>(size);
    if (has_json) break;  // only it is read; the others are copies for other programs
  }
  return files > 0 ? round_up(kBytesPerFileByte * files + kAnyTokenizer, kMib) : 0;
}

// Ids and labels, for packed rows also segments and positions: batches in the queue, the one being
// filled, the one in training and the one returned in exchange.
int64_t batch_bytes(const RunConfig& c) {
  const int64_t rows = (c.train.global_batch + c.parallel.dp - 1) / c.parallel.dp;
  const int64_t numbers = c.data.layout == "pack" ? 4 : 2,
                num_batches = StreamOptions{}.prefetch + 3;
  const int64_t bytes = rows * c.data.seq_length * numbers * int64_t{4} * num_batches;
  return round_up(bytes, kMib);
}

}  // namespace

int64_t expected_table_bytes(int64_t num_nodes) {
  return round_up(kBytesPerNode * std::max<int64_t>(0, num_nodes - kNodesOfProgram), kMib);
}

HostMemory expected_host_memory(const RunConfig& c) {
  const bool is_alone = c.parallel.dp * c.parallel.tp == 1;
  return {.program = kProgramBytes,
          .writer = kWriterBytes,
          .tokenizer = tokenizer_bytes(c),
          .batches = batch_bytes(c),
          .code = kCodeBytes,
          .supervisor = is_alone ? 0 : kSupervisorBytes};
}

}  // namespace weft
