// model/head_in_files.h: whether the head is the embedding: what config.json says, and what the
// files hold.
#pragma once

#include "base/json.h"
#include "io/hf_folder.h"
#include "model/family.h"

namespace weft {

// Whether config.json ties the head to the embedding; where it has no tie_word_embeddings, whether
// its family does.
bool ties_head(const Json& config);
// Makes the head a parameter of its own; the output is scaled as before (T5).
void untie_head(Json& config);

// Whether weights of one configuration can be read with the other's head: both are tied or neither
// is, and the output is scaled in both or in neither (T5).
bool has_same_head(const Json& a, const Json& b);

// config.json with the tie_word_embeddings that the tensors mean, as transformers 5 decides it. A
// head that differs from the embedding is not tied. Where the files decide (T5, for which
// transformers 5 writes true in any case) it is tied unless it differs. A warning reports a head
// that is not as config.json has it. UserError where a copy of the embedding differs from it (T5's
// encoder and decoder with embeddings of their own): not built.
Json config_in_force(const HfFolder& folder);
Json config_in_force(const HfFolder& folder, const FamilyTraits& traits);

}  // namespace weft
