// model/family.h: a family of models: its name in config.json, and its factory.
#pragma once

#include <memory>
#include <span>

#include "model/model.h"

namespace weft {

struct Family {
  const char* architecture;  // the first of config.json's architectures
  const char* model_type;    // where there are none
  std::unique_ptr<Model> (*make)(const Json& config, const ModelOverrides& overrides);
};

std::span<const Family> known_families();  // model/registry.cpp

}  // namespace weft
