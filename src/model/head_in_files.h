// model/head_in_files.h: whether the head is the embedding: what config.json says, and what the
// files hold.
#pragma once

#include <array>
#include <string>

#include "base/json.h"
#include "io/hf_folder.h"

namespace weft {

inline constexpr const char* kStoredHead = "lm_head.weight";
// The embedding in the files of any family, of which a folder has one.
inline constexpr std::array kStoredEmbeddings = {"model.embed_tokens.weight",
                                                 "transformer.word_embeddings.weight",
                                                 "word_embeddings.weight",
                                                 "transformer.wte.weight",
                                                 "wte.weight",
                                                 "shared.weight"};

// Whether config.json ties the head to the embedding; where it has no tie_word_embeddings, whether
// its family does.
bool ties_head(const Json& config);
// Makes the head a parameter of its own; T5's output is scaled as before.
void untie_head(Json& config);

// Whether weights of one configuration can be read with the other's head: both are tied or neither
// is, and T5's output is scaled in both or in neither.
bool has_same_head(const Json& a, const Json& b);

// config.json with the tie_word_embeddings that the tensors mean, as transformers 5 decides it. A
// head that differs from the embedding is not tied; T5's, for which transformers 5 writes true in
// any case, is tied unless it differs. A warning reports a head that is not as config.json has it.
// UserError where T5's encoder and decoder have embeddings of their own: not built.
Json config_in_force(const HfFolder& folder);

}  // namespace weft
