// config/hash_choice.h: which tensor hashes a run writes, chosen by an environment variable.
#pragma once

#include <string>

namespace weft {

// WEFT_TENSOR_HASHES: "1" for hashes of every step, "start" for those of the initial weights and
// norms, "all" for both at every step (norms depend on the layout in their last bits).
inline constexpr const char* kHashesVariable = "WEFT_TENSOR_HASHES";

// The variable's value; UserError where it is none of these.
std::string hashes_word();

}  // namespace weft
