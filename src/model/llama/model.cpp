// model/llama/model.cpp: Llama 2 and 3 are decoders of the common kind.
#include "model/decoder/model.h"

#include "model/llama/config.h"

namespace weft {

std::unique_ptr<Model> make_llama(const Json& config, const ModelOverrides& overrides) {
  return make_decoder(read_llama_config(config), overrides);
}

const FamilyTraits& llama_traits() {
  static const FamilyTraits kTraits = decoder_traits();
  return kTraits;
}

}  // namespace weft
