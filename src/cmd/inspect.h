// cmd/inspect.h: what a path holds, as a JSON object with keys in printing order.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/config.h"

namespace weft {

Json inspect_model(const std::string& path);  // checkpoint, folder, file
// --verify: reads and checks every byte of a checkpoint, of all that a run directory has, or of
// files of torch.save. Damage is part of the answer; RunError, UserError where it cannot be read.
Json verify_checkpoints(const std::string& path);
// UserError where a folder has checkpoints and is none itself, nor a run directory.
void require_no_list(const std::filesystem::path& path);
void require_sound(const Json& verification);  // RunError naming what is damaged
// tokenizer.json, spiece.model, or one of vocab.json and merges.txt next to the other.
bool is_tokenizer_file(const std::filesystem::path& path);
Json inspect_tokenizer(const std::filesystem::path& path);  // such a file, or a folder of them

// Rows and columns of a data file, folder, pattern or URI.
struct InspectRows {
  int64_t num_rows = 0;     // shown as "sample", in addition to the first
  std::string tokenizer;    // if given: lengths of all rows, and the first one with its labels
  DataConfig data;          // templates, seq_length
  int64_t num_batches = 1;  // of a run file
  std::vector<std::string> sets;  // of a run file: section.key=value
};
Json inspect_rows(const std::string& path, const InspectRows& options);
Json inspect_batches(const std::string& run_file, const InspectRows& options);

}  // namespace weft
