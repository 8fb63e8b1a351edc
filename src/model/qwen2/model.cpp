// model/qwen2/model.cpp: Qwen2 and Qwen2.5 are decoders of the common kind.
#include "model/decoder/model.h"

#include "model/qwen2/config.h"

namespace weft {

std::unique_ptr<Model> make_qwen2(const Json& config, const ModelOverrides& overrides) {
  return make_decoder(read_qwen2_config(config), overrides);
}

const FamilyTraits& qwen2_traits() {
  static const FamilyTraits kTraits = decoder_traits();
  return kTraits;
}

}  // namespace weft
