// model/head_in_files.h: whether T5's head is its embedding, which only the files tell.
#pragma once

#include "base/json.h"
#include "io/hf_folder.h"

namespace weft {

// config.json; for T5 with the tie_word_embeddings that its tensors mean. transformers 5 writes
// true for every T5, and ties the head at loading unless the files hold one that differs from the
// embedding; a warning says so where the configuration wants a head that the files lack. UserError
// where encoder and decoder have embeddings of their own: not built.
Json config_in_force(const HfFolder& folder);

}  // namespace weft
