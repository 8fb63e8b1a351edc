// model/model.cpp: choosing the family, initial values, frozen parameters.
#include "model/model.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "model/check_config.h"
#include "model/decoder/model.h"
#include "model/family.h"

namespace weft {
namespace {

constexpr const char* kConfigFile = "config.json";

struct Family {
  const char* architecture;
  const char* model_type;
  DecoderConfig (*read)(const Json&);
};
constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", read_llama_config},
    {"Qwen2ForCausalLM", "qwen2", read_qwen2_config},
};

std::string named_architecture(const Json& config) {
  const Json* list = config.find("architectures");
  if (list && list->is_array() && !list->as_array().empty() && list->as_array()[0].is_string()) {
    return list->as_array()[0].as_string();
  }
  const Json* type = config.find("model_type");
  return type && type->is_string() ? type->as_string() : "none";
}

void check_dropout(const DecoderConfig& c, const char* key) {
  if (c.dropout >= 0 && c.dropout < 1) return;
  throw UserError(fmt::format("{} is {}, wanted at least 0 and below 1", key, c.dropout),
                  "set model.dropout: 0.0 to train without dropout");
}

}  // namespace

std::unique_ptr<Model> make_model(const Json& config, const ModelOverrides& overrides) {
  const std::string name = named_architecture(config);
  std::string known;
  for (const Family& family : kFamilies) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
    if (name != family.architecture && name != family.model_type) continue;
    check_config_json(config);
    DecoderConfig c = family.read(config);
    require(overrides.num_layers <= c.num_hidden_layers,
            "model.num_layers is {}, but the model has {} layers", overrides.num_layers,
            c.num_hidden_layers);
    if (overrides.num_layers > 0) c.num_hidden_layers = overrides.num_layers;
    if (overrides.dropout) c.dropout = *overrides.dropout;
    check_dropout(c, overrides.dropout ? "model.dropout" : "config.json: attention_dropout");
    return std::make_unique<DecoderModel>(std::move(c));
  }
  throw UserError(fmt::format("config.json: architecture {} is not known", name),
                  "known: " + known);
}

// Who reads a field knows no path: every message about the file begins with its name.
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

void initial_values(const ParameterSpec& spec, uint64_t seed, int64_t begin, int64_t end,
                    float* out) {
  if (spec.init.kind != InitRule::Kind::kNormal) {
    std::fill(out, out + (end - begin), spec.init.kind == InitRule::Kind::kOnes ? 1.0f : 0.0f);
    return;
  }
  const uint64_t stream = hash_text(spec.name);
  for (int64_t i = begin; i < end;) {
    const auto pair = normal_pair(seed, stream, static_cast<uint64_t>(i) / 2);
    for (int64_t k = i % 2; k < 2 && i < end; ++k, ++i) {
      out[i - begin] = static_cast<float>(spec.init.std * pair[static_cast<size_t>(k)]);
    }
  }
  if (spec.init.zero_row < 0) return;
  const int64_t row = spec.shape[1];
  const int64_t zero_begin = std::max(begin, spec.init.zero_row * row);
  const int64_t zero_end = std::min(end, (spec.init.zero_row + 1) * row);
  for (int64_t i = zero_begin; i < zero_end; ++i) out[i - begin] = 0;
}

float initial_element(const ParameterSpec& spec, uint64_t seed, int64_t i) {
  float v;
  initial_values(spec, seed, i, i + 1, &v);
  return v;
}

void freeze_parameters(Graph* graph, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (Ref r : graph->of_kind(ValueKind::kParameter)) {
      Value& p = (*graph)[r];
      if (::fnmatch(pattern.c_str(), p.name.c_str(), 0) != 0) continue;
      p.frozen = any = true;
    }
    if (!any) {
      throw UserError(fmt::format("model.freeze: \"{}\" matches no parameter", pattern),
                      "`weft inspect` on the model's folder lists the names");
    }
  }
}

int64_t count_parameters(const Model& model) {
  int64_t n = 0;
  for (const ParameterSpec& p : model.parameters()) n += num_elements(p.shape);
  return n;
}

}  // namespace weft
