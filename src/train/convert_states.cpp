// train/convert_states.cpp: compares the types of a checkpoint with those of the run.
#include "train/convert_states.h"

#include <fmt/core.h>

#include <optional>

#include "checkpoint/checkpoint.h"

namespace weft {
namespace {

struct Types {
  bool has_masters = false;
  Dtype weights = Dtype::kF32;  // as stored: of masters, where there are any
  std::optional<Dtype> states;  // none: the optimizer has none
};

bool is_converted(Dtype d) { return d == Dtype::kF32 || d == Dtype::kBf16 || d == Dtype::kF16; }

Types types_of(const StoredTensors& stored) {
  Types types;
  for (const auto& [name, tensor] : stored) {
    if (name.ends_with(kMaster)) {
      types.has_masters = true;
    } else if (name.find('#') != std::string::npos) {
      if (is_converted(tensor.dtype)) types.states = tensor.dtype;
    } else {
      types.weights = tensor.dtype;
    }
  }
  if (types.has_masters) types.weights = Dtype::kF32;  // those without are frozen
  return types;
}

// "fp32", "fp32 master weights"
std::string words(Dtype dtype, bool is_master) {
  return fmt::format("{}{}", dtype_name(dtype), is_master ? " master weights" : "");
}

// Masters and moments of fp32 lose bits in bf16; the other way no value changes.
std::string what_happens(Dtype from, Dtype to) {
  if (from == to) return "unchanged";
  return dtype_bytes(to) < dtype_bytes(from) ? "rounded to nearest even" : "with the same values";
}

}  // namespace

std::string describe_conversion(const StoredTensors& stored, const RunConfig& c) {
  const Types from = types_of(stored);
  Types to;
  to.has_masters = c.has_masters();
  to.weights = to.has_masters ? Dtype::kF32 : c.compute_dtype();
  if (from.states) to.states = to.weights;
  if (from.has_masters == to.has_masters && from.weights == to.weights && from.states == to.states)
    return "";
  std::string text =
      fmt::format("--convert-states: weights {} -> {}, {}", words(from.weights, from.has_masters),
                  words(to.weights, to.has_masters), what_happens(from.weights, to.weights));
  if (to.has_masters)
    text += fmt::format(" (passes compute with them rounded to {})", dtype_name(c.compute_dtype()));
  if (from.states)
    text += fmt::format("; states {} -> {}, {}", dtype_name(*from.states), dtype_name(*to.states),
                        what_happens(*from.states, *to.states));
  return text;
}

}  // namespace weft
