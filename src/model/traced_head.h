// model/traced_head.h: what every decoder of text ends with.
#pragma once

#include "model/traced_inputs.h"

namespace weft {

// Of y (B, T, C) and the head's weight (V, C): the losses (B, T) where the inputs have targets,
// else the logits (B, V) of each row's last position.
Ref trace_head(Builder& g, const TracedInputs& in, const TraceOptions& options, Ref y, Ref head);

}  // namespace weft
