// model/mistral/model.cpp: Mistral is a decoder of the common kind.
#include "model/decoder/model.h"

#include "model/mistral/config.h"

namespace weft {

std::unique_ptr<Model> make_mistral(const Json& config, const ModelOverrides& overrides) {
  return make_decoder(read_mistral_config(config), overrides);
}

const FamilyTraits& mistral_traits() {
  static const FamilyTraits kTraits = decoder_traits();
  return kTraits;
}

}  // namespace weft
