// model/text_inputs.h: what models of text read for their loss, and to generate.
#pragma once

#include <vector>

#include "model/inputs.h"
#include "model/model.h"

namespace weft {

// For trace_loss; has_dropout: the model draws masks in training; looks_up_positions: rows that are
// not packed have positions, too.
std::vector<InputSpec> decoder_inputs(const TraceOptions& options, bool has_dropout,
                                      bool looks_up_positions = false);
// The same for an encoder-decoder, which reads a source, too.
std::vector<InputSpec> encoder_decoder_inputs(const TraceOptions& options, bool has_dropout);
// For trace_generate.
std::vector<InputSpec> decoder_generate_inputs();
std::vector<InputSpec> encoder_decoder_generate_inputs();
std::vector<InputSpec> encode_inputs();  // for trace_encode

}  // namespace weft
