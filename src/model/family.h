// model/family.h: a family of models: its name in config.json, and its factory.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "model/model.h"

namespace weft {

struct Family {
  const char* architecture;  // the first of config.json's architectures
  const char* model_type;    // where there are none
  std::unique_ptr<Model> (*make)(const Json& config, const ModelOverrides& overrides);
};

std::span<const Family> known_families();  // model/registry.cpp
// The model_type of the family that config.json names, of an unknown one what the file has; "none"
// where it names none.
std::string family_name(const Json& config);

}  // namespace weft
