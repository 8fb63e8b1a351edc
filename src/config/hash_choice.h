// config/hash_choice.h: which hashes of tensors a run writes, by its environment.
#pragma once

#include <string>

namespace weft {

// WEFT_TENSOR_HASHES: "1" for hashes of every step, "start" for those of the initial weights and
// norms, "all" for both at every step (norms depend on the layout in their last bits).
inline constexpr const char* kHashesVariable = "WEFT_TENSOR_HASHES";

// What the variable says; UserError where it is no word of these.
std::string hashes_word();

}  // namespace weft
