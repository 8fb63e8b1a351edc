// planning/fault.h: a deliberate fault, for tests that show that a check detects it.
//
// WEFT_FAULT=KIND[,step=N][,rank=R][,tensor=NAME], for example flip,step=7,rank=1. Every rank
// warns.
//   flip    one bit of a gradient that rank R updates, before the update of step N (exact mode:
//           fast mode may differ by as much)
//   swap    the tensor-parallel group of rank R adds two leaves of step N in swapped order (exact
//           mode: its second and third pass exchange their rows)
//   double  the gradient of a norm is added twice, on all ranks that hold it, before update N
//
//   norm    the squares of one gradient are counted twice in the gradient norm, in every step
//
//   copy    one bit of a parameter that other ranks have copies of, on rank R after step N
//
// Copies are then compared after every step. A production run never has the variable.
#pragma once

#include <optional>
#include <string>

#include "model/model.h"
#include "planning/layout.h"

namespace weft {

inline constexpr const char* kFaultVariable = "WEFT_FAULT";

struct Fault {
  // UserError where the value is invalid; none where the variable is not set.
  static std::optional<Fault> from_environment();

  // UserError where the fault cannot apply to this layout: a control without effect proves nothing.
  void check(const RunConfig& config, const Layout& layout, const Model* model = nullptr) const;
  // The run has executed steps `first` to `last`. RunError where the fault's step was not one of
  // them.
  void check_fired(int64_t first, int64_t last) const;
  void warn() const;
  // The norm of the graph of rank `on_rank`.
  void change(Graph* graph, int on_rank) const;

  bool acts_in_every_step() const { return kind == Kind::kNorm; }
  bool is_wanted(const std::string& name) const { return tensor.empty() || tensor == name; }
  void check_tensor(const Model& model, const RunConfig& config) const;

  enum class Kind { kFlip, kSwap, kDouble, kNorm, kCopy };
  std::string words;  // of the variable
  Kind kind = Kind::kFlip;
  int64_t step = 1;
  int rank = 0;
  std::string tensor;  // empty: any
};

}  // namespace weft
