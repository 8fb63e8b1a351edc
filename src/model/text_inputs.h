// model/text_inputs.h: what a decoder of text reads for its loss, and to generate.
#pragma once

#include <vector>

#include "model/inputs.h"
#include "model/model.h"

namespace weft {

// For trace_loss; has_dropout: the model draws masks in training; looks_up_positions: rows that are
// not packed have positions, too.
std::vector<InputSpec> decoder_inputs(const TraceOptions& options, bool has_dropout,
                                      bool looks_up_positions = false);
// For trace_generate.
std::vector<InputSpec> decoder_generate_inputs();

}  // namespace weft
