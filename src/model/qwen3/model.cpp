// model/qwen3/model.cpp: Qwen3 is a decoder of the common kind.
#include "model/decoder/model.h"

#include "model/qwen3/config.h"

namespace weft {

std::unique_ptr<Model> make_qwen3(const Json& config, const ModelOverrides& overrides) {
  return make_decoder(read_qwen3_config(config), overrides);
}

const FamilyTraits& qwen3_traits() {
  static const FamilyTraits kTraits = decoder_traits();
  return kTraits;
}

}  // namespace weft
