// model/check_config.cpp: quantization, pruned heads and token ids.
#include "model/check_config.h"

#include <limits>

#include "base/error.h"

namespace weft {
namespace {

// transformers writes quantization_config, compressed-tensors once wrote compression_config.
void refuse_quantization(const Json& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const Json* found = config.find(key);
    if (!found || found->is_null()) continue;
    const Json* method = found->find("quant_method");
    throw UserError(fmt::format("config.json: {}{}: quantized weights cannot be read", key,
                                method ? " with quant_method " + method->dump() : ""),
                    "use the unquantized model; if the weights are plain fp32, bf16 or "
                    "fp16, remove the field from config.json");
  }
}

// transformers 4 removes these heads' rows from the weights before it reads them.
void refuse_pruned_heads(const Json& config) {
  const Json* heads = config.find("pruned_heads");
  if (!heads || heads->is_null() || (heads->is_object() && heads->as_object().empty())) return;
  throw UserError(fmt::format("config.json: pruned_heads is {}, which is not built for any model",
                              heads->dump()),
                  "remove it if the weights have all heads");
}

bool is_token_id(const Json& value) {
  return value.is_int() && value.as_int() >= 0 &&
         value.as_int() <= std::numeric_limits<int32_t>::max();
}

// eos may be several tokens (Llama 3); the others are one, and some old files write -1 for none.
void check_token_id(const Json& config, const char* key, bool takes_list) {
  const Json* id = config.find(key);
  if (!id || id->is_null() || is_token_id(*id)) return;
  bool ok = takes_list ? id->is_array() && !id->as_array().empty() : *id == Json(-1);
  if (id->is_array()) {
    for (const Json& one : id->as_array()) ok = ok && is_token_id(one);
  }
  require(ok, "config.json: \"{}\" is {}, wanted a token id (a whole number from 0), {} or null",
          key, id->dump(), takes_list ? "a list of them" : "-1 (none)");
}

}  // namespace

void check_config_json(const Json& config) {
  refuse_quantization(config);
  refuse_pruned_heads(config);
  check_token_id(config, "eos_token_id", true);
  check_token_id(config, "bos_token_id", false);
  check_token_id(config, "pad_token_id", false);
  check_token_id(config, "decoder_start_token_id", false);
}

}  // namespace weft
