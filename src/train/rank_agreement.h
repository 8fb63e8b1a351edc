// train/rank_agreement.h: what the ranks of a run must agree on: start, signals, numbers, batches.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "data/batches.h"
#include "train/ranks.h"
#include "train/run_dir.h"

namespace weft {

// Broadcasts rank 0's result to all.
RunStart agree_on_start(Ranks& ranks, RunStart found);
int64_t agree_on_number(Ranks& ranks, const std::function<int64_t()>& count);
std::string agree_on_text(Ranks& ranks, const std::function<std::string()>& choose);

// The text of the first rank whose text is not empty; "": none.
std::string first_text(Ranks& ranks, const std::string& mine);

// The numbers of all ranks, by rank.
std::vector<int64_t> gather_numbers(Ranks& ranks, int64_t mine);

// The signal that any rank has received, so that all stop at the same place. 0: none.
int agree_on_signal(Ranks& ranks, int received);
// What happened to all ranks' rows.
DataCounters sum_counters(Ranks& ranks, DataCounters mine);
// Whether it succeeded on all ranks of the group.
bool agree_on_success(Comm& group, bool ok);

struct RankHost {
  std::string name;    // of the machine
  int first_rank = 0;  // the lowest rank on it
};

struct RankInputs {
  std::string run;         // the run file
  std::string data;        // describe_files()
  Json numerics;           // the fingerprint
  std::string model = {};  // describe_model_files()
  RankHost host = {};
};
// Throws UserError if a rank's inputs differ from rank 0's. The message names the rank, its node
// (if there are several) and the inputs of both.
void agree_on_inputs(Ranks& ranks, const RankInputs& mine);

// Compares descriptions of files of one kind (`what`), one line per file, as agree_on_inputs()
// does. Empty texts are not compared.
void agree_on_files(Ranks& ranks, const RankHost& host, const std::string& what,
                    const std::string& mine);

// Whether the ranks are on several machines.
bool has_several_hosts(Ranks& ranks, const RankHost& host);

// Ranks of a tensor group must have made the same rows, and all ranks must be at the same place in
// the data. BugError naming step and ranks where not.
void compare_batches(Ranks& ranks, const Batch& batch, int64_t step);

}  // namespace weft
