// model/registry.cpp: the families that exist, and the choice among them.
#include <array>

#include "base/error.h"
#include "model/check_config.h"
#include "model/family.h"

// One line per family: its architecture, and its model_type, which is also the name of its folder
// and of its factory make_<model_type>.
#define WEFT_FAMILIES(FAMILY)              \
  FAMILY("LlamaForCausalLM", llama)        \
  FAMILY("Qwen2ForCausalLM", qwen2)        \
  FAMILY("Qwen3ForCausalLM", qwen3)        \
  FAMILY("MistralForCausalLM", mistral)    \
  FAMILY("GPT2LMHeadModel", gpt2)          \
  FAMILY("Gemma3ForCausalLM", gemma3_text) \
  FAMILY("BloomForCausalLM", bloom)        \
  FAMILY("T5ForConditionalGeneration", t5) \
  FAMILY("T5WithLMHeadModel", t5) /* the name in the first released files */

namespace weft {

#define DECLARE(architecture, type) \
  std::unique_ptr<Model> make_##type(const Json& config, const ModelOverrides& overrides);
WEFT_FAMILIES(DECLARE)
#undef DECLARE

namespace {

constexpr const char* kConfigFile = "config.json";

#define ENTRY(architecture, type) Family{architecture, #type, make_##type},
constexpr auto kFamilies = std::to_array<Family>({WEFT_FAMILIES(ENTRY)});
#undef ENTRY

std::string named_architecture(const Json& config) {
  const Json* list = config.find("architectures");
  if (list && list->is_array() && !list->as_array().empty() && list->as_array()[0].is_string()) {
    return list->as_array()[0].as_string();
  }
  const Json* type = config.find("model_type");
  return type && type->is_string() ? type->as_string() : "none";
}

}  // namespace

std::span<const Family> known_families() { return kFamilies; }

std::string family_name(const Json& config) {
  const std::string name = named_architecture(config);
  for (const Family& family : known_families()) {
    if (name == family.architecture) return family.model_type;
  }
  const Json* type = config.find("model_type");
  return type && type->is_string() ? type->as_string() : name;
}

std::unique_ptr<Model> make_model(const Json& config, const ModelOverrides& overrides,
                                  std::span<const Family> families) {
  const std::string name = named_architecture(config);
  std::string known;
  for (const Family& family : families) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
    if (name != family.architecture && name != family.model_type) continue;
    check_config_json(config);
    return family.make(config, overrides);
  }
  throw UserError(fmt::format("config.json: unknown architecture {}", name), "known: " + known);
}

std::unique_ptr<Model> make_model(const Json& config, const ModelOverrides& overrides) {
  return make_model(config, overrides, known_families());
}

// Field readers do not know the path: prefixes every message about the file with its name.
std::unique_ptr<Model> make_model(const Json& config, const ModelOverrides& overrides,
                                  const std::filesystem::path& folder) {
  try {
    return make_model(config, overrides);
  } catch (const UserError& e) {
    const std::string message = e.what();
    if (!message.starts_with(kConfigFile)) throw;
    throw UserError((folder / message).string(), e.hint());
  }
}

}  // namespace weft
