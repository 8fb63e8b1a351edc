// model/decoder/placement.cpp: how tensor parallelism may cut the parameters.
//
// Column cut (dim 0): q, k, v by whole heads, gate, up. Row cut (dim 1): o, down. The embedding
// and the head are cut over the vocabulary. All heads share q_norm and k_norm. Other norms and
// row-cut biases stay whole.
#include "model/decoder/hf_names.h"
#include "model/decoder/model.h"
#include "model/name_part.h"

namespace weft {
CutRule decoder_cut(const DecoderConfig& config, const std::string& name) {
  constexpr const char *kHeads = "attention heads", *kWidth = "feed-forward channels";
  if (name == kEmbedName || name == kHeadName) return {0, 1, true, false, "vocabulary"};
  if (has_part(name, "q_proj")) return {0, config.head_dim, false, false, kHeads};
  for (const char* module : {"k_proj", "v_proj"}) {
    if (has_part(name, module)) return {0, config.head_dim, false, true, "key/value heads"};
  }
  for (const char* module : {"q_norm", "k_norm"}) {
    if (has_part(name, module)) return shared_by_heads(config.head_dim);
  }
  for (const char* module : {"gate_proj", "up_proj"}) {
    if (has_part(name, module)) return {0, 1, false, false, kWidth};
  }
  if (has_part(name, "o_proj.weight")) return {1, config.head_dim, false, false, kHeads};
  if (has_part(name, "down_proj.weight")) return {1, 1, false, false, kWidth};
  return {};
}

}  // namespace weft
