// model/decoder/inputs.cpp: what a decoder reads for its loss, and to generate.
#include "model/decoder/model.h"
#include "tensor/names.h"

namespace weft {
namespace {

InputSpec tokens(const char* name, int64_t fill = 0) {
  return {name, {Dim::kRows, Dim::kTarget}, Dtype::kI32, fill};
}

InputSpec per_row(const char* name) { return {name, {Dim::kRows}, Dtype::kI32, 0}; }

}  // namespace

std::vector<InputSpec> DecoderModel::inputs(const TraceOptions& options) const {
  std::vector<InputSpec> all = {tokens(names::kIds), tokens(names::kTargets, -1),
                                per_row(names::kLengths)};
  if (options.packed) all.push_back(tokens(names::kPositions));
  if (options.drops && config_.dropout > 0)
    all.push_back({names::kRows, {Dim::kRows, Dim::kTwo}, Dtype::kI64, -1});
  return all;
}

std::vector<InputSpec> decoder_generate_inputs() {
  return {tokens(names::kIds), tokens(names::kPositions), per_row(names::kStarts),
          per_row(names::kLengths), per_row(names::kLast)};
}

}  // namespace weft
