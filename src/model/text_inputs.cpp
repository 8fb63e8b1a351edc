// model/text_inputs.cpp: rows of ids, with what packed rows and dropout need.
#include "model/text_inputs.h"

#include "tensor/names.h"

namespace weft {
namespace {

InputSpec tokens(const char* name, int64_t fill = 0) {
  return {name, {Dim::kRows, Dim::kTarget}, Dtype::kI32, fill};
}

InputSpec source_tokens(const char* name) {
  return {name, {Dim::kRows, Dim::kSource}, Dtype::kI32, 0};
}

InputSpec per_row(const char* name) { return {name, {Dim::kRows}, Dtype::kI32, 0}; }

}  // namespace

std::vector<InputSpec> decoder_inputs(const TraceOptions& options, bool has_dropout,
                                      bool looks_up_positions) {
  std::vector<InputSpec> all = {tokens(names::kIds), tokens(names::kTargets, -1),
                                per_row(names::kLengths)};
  if (options.packed || looks_up_positions) all.push_back(tokens(names::kPositions));
  if (options.drops && has_dropout)
    all.push_back({names::kRows, {Dim::kRows, Dim::kTwo}, Dtype::kI64, -1});
  return all;
}

std::vector<InputSpec> encoder_decoder_inputs(const TraceOptions& options, bool has_dropout) {
  std::vector<InputSpec> all = decoder_inputs(options, has_dropout);
  all.push_back(source_tokens(names::kSourceIds));
  all.push_back(per_row(names::kSourceLengths));
  if (options.packed) all.push_back(source_tokens(names::kSourcePositions));
  return all;
}

std::vector<InputSpec> decoder_generate_inputs() {
  return {tokens(names::kIds), tokens(names::kPositions), per_row(names::kStarts),
          per_row(names::kLengths), per_row(names::kLast)};
}

std::vector<InputSpec> encoder_decoder_generate_inputs() {
  std::vector<InputSpec> all = decoder_generate_inputs();
  all.push_back(per_row(names::kSourceLengths));
  return all;
}

std::vector<InputSpec> encode_inputs() {
  return {source_tokens(names::kSourceIds), per_row(names::kSourceLengths)};
}

}  // namespace weft
