// train/tensor_hashes.h: a hash of every logical tensor after every step, the same in every layout.
//
// Each element's bits are mixed with its index in the logical tensor, and the sum of all these mod
// 2^64 is the tensor's hash. A sum does not depend on order or layout: every rank sums the elements
// that it owns, rank 0 sums the ranks, and equal tensors have equal hashes in any layout.
//
// tensor_hashes.jsonl of the run directory, one line per step: {"step", "tensors": {name: hash}}:
// first the gradients (NAME#grad, summed over the batch and before clipping), then the weights in
// their best precision (NAME), then the optimizer's states (NAME#m), each in the order of the
// model. So the first name that differs between two runs is the first tensor that went wrong. Line
// 0 holds the initial weights.
//
// Where bits may differ (fast mode), the lines after the first hold the L2 norm of every gradient
// instead: {"step", "norms": {name: norm}}, without fp16's loss scale. A wrong gradient shows there
// at once, however small its share. Gradients of copied key/value heads are omitted: there the
// update sums them. An fp16 step that overflowed has no norms.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "config/hash_choice.h"
#include "train/engine.h"
#include "train/gradients.h"

namespace weft {

inline constexpr const char* kHashesFile = "tensor_hashes.jsonl";

class TensorHashes {
 public:
  // Null where the variable does not request them. `step`: where the run starts. keep_bytes: of the
  // lines so far, where a run goes back to that step; -1: it starts. Collective.
  static std::unique_ptr<TensorHashes> from_environment(Engine& engine, const Model& model,
                                                        Ranks& ranks,
                                                        const OptimizerConfig& optimizer,
                                                        const std::filesystem::path& dir,
                                                        int64_t step, int64_t keep_bytes = -1);
  // Of the lines so far, on rank 0; else -1.
  int64_t bytes() const;

  bool has_every_step() const { return every_step_; }
  // Before and after the update. Collective. `factor`: by which the gradients of the step were
  // multiplied (fp16); none: they were not finite, and the step was skipped.
  void take_gradients();
  void write(int64_t step, std::optional<double> factor = 1);

 private:
  TensorHashes(Engine& engine, const Model& model, Ranks& ranks, const OptimizerConfig& optimizer,
               const std::string& what);
  void add(const std::vector<Slice>& held, const std::vector<size_t>& indices);
  std::vector<size_t> find_indices(const std::vector<Slice>& slices) const;
  void sum_over_ranks();
  void add_squares();
  Json::Object tensors_of_step();
  Json::Object norms_of_step(double factor);

  Ranks& ranks_;
  ThreadPool* pool_;
  Device* device_;
  bool every_step_, has_norms_;
  std::vector<std::string> names_;
  std::vector<int64_t> sizes_;  // elements of the whole tensor
  std::vector<Slice> gradients_, weights_;
  std::vector<size_t> gradient_indices_, weight_indices_;
  std::vector<uint64_t> sums_;     // of names_, then how many elements were added to each
  std::vector<uint8_t> is_whole_;  // of gradients_
  // Of names_, then how many slices were added to each; empty: none were computed in this step.
  std::vector<double> squares_;
  std::optional<FileWriter> file_;
  std::filesystem::path path_;
};

// The mix of one element, for tests.
uint64_t element_hash(uint64_t bits, int64_t index);

}  // namespace weft
