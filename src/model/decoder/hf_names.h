// model/decoder/hf_names.h: the parameters of a layer under their Hugging Face names.
#pragma once

#include <string>

namespace weft {

inline constexpr const char* kEmbedName = "model.embed_tokens.weight";
inline constexpr const char* kFinalNormName = "model.norm.weight";
inline constexpr const char* kHeadName = "lm_head.weight";

enum class LayerPart {
  kInputNorm,
  kQ,
  kK,
  kV,
  kO,
  kPostNorm,
  kGate,
  kUp,
  kDown,
  kQNorm,
  kKNorm,
};

std::string layer_name(int64_t layer, LayerPart part, const char* leaf);  // leaf: weight | bias

}  // namespace weft
