// train/faults.h: deliberate faults, for tests that show that a check finds them.
//
// WEFT_FAULT=KIND[,step=N][,rank=R][,tensor=NAME], for example flip,step=7,rank=1. Every rank
// warns.
//   flip    one bit of a gradient that rank R updates, before the update of step N (exact mode:
//           fast mode may differ by as much)
//   swap    the tensor-parallel group of rank R adds two leaves of step N in swapped order (exact
//           mode: its second and third pass exchange their rows)
//   double  the gradient of a norm is added twice, on all ranks that hold it, before update N
//
//   norm    the squares of one gradient count twice in the gradient norm, in every step
//
//   copy    one bit of a parameter of which other ranks hold copies, on rank R after step N
//
// Copies are then compared after every step. A production run never has the variable.
#pragma once

#include <optional>
#include <string>

#include "data/batches.h"
#include "train/engine.h"

namespace weft {

inline constexpr const char* kFaultVariable = "WEFT_FAULT";

class Fault {
 public:
  // UserError where the words make no sense; nothing where the variable is not set.
  static std::optional<Fault> from_environment();

  // UserError where this layout has no place for the fault: a control that does nothing proves
  // nothing.
  void check(const RunConfig& config, const Layout& layout, const Model* model = nullptr) const;
  // The run has made the steps from `first` to `last`. RunError where the fault's was none of them.
  void check_fired(int64_t first, int64_t last) const;
  void warn() const;

  void before_passes(int64_t step, const RunConfig& config, const Ranks& ranks, Batch* batch) const;
  void before_update(int64_t step, const Engine& engine, const Ranks& ranks) const;
  void after_update(int64_t step, const Engine& engine, const Ranks& ranks) const;
  // The norm of the graph of rank `rank`.
  void change(Graph* graph, int rank) const;

 private:
  void check_tensor(const Model& model, const RunConfig& config) const;
  enum class Kind { kFlip, kSwap, kDouble, kNorm, kCopy };
  bool acts_at_once() const { return kind_ == Kind::kNorm; }  // in every step
  bool is_wanted(const std::string& tensor) const { return tensor_.empty() || tensor_ == tensor; }

  std::string words_;
  Kind kind_ = Kind::kFlip;
  int64_t step_ = 1;
  int rank_ = 0;
  std::string tensor_;
};

}  // namespace weft
