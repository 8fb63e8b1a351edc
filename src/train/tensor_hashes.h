// train/tensor_hashes.h: a hash of every logical tensor after every step, the same in every layout.
//
// Each element's bits are mixed with its index in the logical tensor, and the sum of all these mod
// 2^64 is the tensor's hash. A sum has no order and no cut: every rank adds up the elements that it
// speaks for, rank 0 adds up the ranks, and whatever the layout, equal tensors have equal hashes.
//
// tensor_hashes.jsonl of the run directory, one line a step: {"step", "tensors": {name: hash}}:
// first the gradients (NAME#grad, summed over the batch and before clipping), then the weights in
// their best precision (NAME), then the states (NAME#m, NAME#v), each in the order of the model.
// So the first name that differs between two runs is the first tensor that went wrong. Line 0 holds
// the initial weights.
//
// Where bits may differ (fast mode), the lines after the first hold the L2 norm of every gradient
// instead: {"step", "norms": {name: norm}}, without fp16's loss scale. A gradient that is wrong
// shows there at once, however little it is of all. Gradients of copied key/value heads are left
// out: there the update adds them up. A step of fp16 that overflowed has no norms.
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
  // Null where the variable does not ask for them. `step`: where the run starts. All ranks make
  // theirs together.
  static std::unique_ptr<TensorHashes> from_environment(Engine& engine, const Model& model,
                                                        Ranks& ranks,
                                                        const std::filesystem::path& dir,
                                                        int64_t step);

  bool has_every_step() const { return every_step_; }
  // Before the update and after it. All ranks call them. `factor`: by which the gradients of the
  // step were multiplied (fp16); none: they were not finite, and the step does not count.
  void take_gradients();
  void write(int64_t step, std::optional<double> factor = 1);

 private:
  TensorHashes(Engine& engine, const Model& model, Ranks& ranks, const std::string& what);
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
  // Of names_, then how many slices were added to each; empty: none were taken in this step.
  std::vector<double> squares_;
  std::optional<FileWriter> file_;
};

// The mix of one element, for tests.
uint64_t element_hash(uint64_t bits, int64_t index);

}  // namespace weft
