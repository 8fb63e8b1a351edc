// model/registry.cpp: the families that exist, and the choice among them.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/check_config.h"
#include "model/family.h"

// One line per family: its architecture, and its model_type, which is also the name of its folder
// and of its factory make_<model_type>, with <model_type>_traits next to it.
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

#define DECLARE(architecture, type)                                                        \
  std::unique_ptr<Model> make_##type(const Json& config, const ModelOverrides& overrides); \
  const FamilyTraits& type##_traits();
WEFT_FAMILIES(DECLARE)
#undef DECLARE

namespace {

constexpr const char* kConfigFile = "config.json";

#define ENTRY(architecture, type) Family{architecture, #type, make_##type, type##_traits},
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

const Family* find_family(const Json& config, std::span<const Family> families) {
  const std::string name = named_architecture(config);
  for (const Family& family : families) {
    if (name == family.architecture || name == family.model_type) return &family;
  }
  return nullptr;
}

// Of files, whose architecture need not be built: a T5EncoderModel has T5's names.
const Family* find_family_of_files(const Json& config, std::span<const Family> families) {
  if (const Family* family = find_family(config, families)) return family;
  const Json* type = config.find("model_type");
  for (const Family& family : families) {
    if (type && *type == Json(family.model_type)) return &family;
  }
  return nullptr;
}

void add_new(const std::vector<std::string>& from, std::vector<std::string>& to) {
  for (const std::string& name : from) {
    if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
  }
}

FamilyTraits union_of(std::span<const Family> families) {
  FamilyTraits all;
  all.is_unknown = true;
  for (const Family& family : families) {
    const FamilyTraits& one = family.traits();
    add_new(one.embeddings, all.embeddings);
    add_new(one.layer_keys, all.layer_keys);
    add_new(one.size_keys, all.size_keys);
    add_new(one.stray_ends, all.stray_ends);
    add_new(one.embedding_copies, all.embedding_copies);
  }
  return all;
}

}  // namespace

std::span<const Family> known_families() { return kFamilies; }

std::string family_name(const Json& config) {
  if (const Family* family = find_family(config, known_families())) return family->model_type;
  const Json* type = config.find("model_type");
  return type && type->is_string() ? type->as_string() : named_architecture(config);
}

const FamilyTraits& traits_of(const Json& config) {
  static const FamilyTraits kUnknown = union_of(known_families());
  const Family* family = find_family_of_files(config, known_families());
  return family ? family->traits() : kUnknown;
}

std::vector<std::string> size_keys(const Json& config) {
  std::vector<std::string> keys = {"vocab_size"};
  add_new(traits_of(config).size_keys, keys);
  add_new(traits_of(config).layer_keys, keys);
  return keys;
}

FamilyTraits traits_of(const Json& config, std::span<const Family> families) {
  const Family* family = find_family_of_files(config, families);
  return family ? family->traits() : union_of(families);
}

std::unique_ptr<Model> make_model(const Json& config, const ModelOverrides& overrides,
                                  std::span<const Family> families) {
  if (const Family* family = find_family(config, families)) {
    check_config_json(config);
    return family->make(config, overrides);
  }
  std::string known;
  for (const Family& family : families)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  throw UserError(fmt::format("config.json: unknown architecture {}", named_architecture(config)),
                  "known: " + known);
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
