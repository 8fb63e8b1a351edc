// train/step_runner.h: the steps of a run one after another, and what is recorded of each.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "planning/fault.h"
#include "train/saver.h"
#include "train/tensor_hashes.h"

namespace weft {

class StepRunner {
 public:
  struct Run {  // what it refers to must outlive the runner
    const RunConfig& config;
    const std::filesystem::path& dir;
    Engine& engine;
    Ranks& ranks;
    RunRecord& record;
    Saver& saver;
    const std::optional<Fault>& fault;
    TensorHashes* hashes;  // null: not requested
    int64_t total_steps;   // for the schedule
  };
  // `state`: step, updates and loss scale are kept there. An update in flight counts as done;
  // end_pending() corrects that.
  StepRunner(const Run& run, TrainState* state);

  // One step. Its results are read, checked and recorded here or, where steps may be in flight,
  // when the next one has been started. Collective.
  void run(Batch& batch);
  // Ends every step in flight: before anything that needs the weights or the numbers of all steps.
  void end_pending() { end_all_but(0); }

 private:
  bool is_check_due();
  void update(const StepMetrics& line);
  void end_all_but(size_t num_left);
  void end_step();
  void take_norm(double norm, const LossScale& next, StepMetrics* line);

  Run run_;
  TrainState* state_;
  size_t max_in_flight_;
  int64_t steps_run_ = 0;
  std::array<StepMetrics, StepsInFlight::kMost> pending_;  // in the order of steps
  size_t num_pending_ = 0;
};

}  // namespace weft
