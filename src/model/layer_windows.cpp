// model/layer_windows.cpp: layer_types, or a family's older rule.
#include "model/layer_windows.h"

#include "base/error.h"
#include "model/config_fields.h"

namespace weft {
namespace {

bool is_sliding_type(const Json& type) {
  const std::string name = type.is_string() ? type.as_string() : "";
  require(name == "full_attention" || name == "sliding_attention",
          "config.json: layer_types holds {}: built are full_attention and sliding_attention",
          type.dump());
  return name == "sliding_attention";
}

}  // namespace

int64_t sliding_window_or(const Json& config, int64_t otherwise) {
  const Json* v = config.find("sliding_window");
  if (v == nullptr) return otherwise;
  return v->is_null() ? 0 : positive(config, "sliding_window", kMostPositions);
}

std::vector<int64_t> layer_windows(const Json& config, int64_t num_layers, int64_t window,
                                   const std::function<bool(int64_t layer)>& is_sliding) {
  const Json* types = config.find("layer_types");
  const bool has_types = types != nullptr && !types->is_null();
  const auto n = static_cast<size_t>(num_layers);
  require(!has_types || (types->is_array() && types->as_array().size() == n),
          "config.json: layer_types must be a list of {} types, one per layer", num_layers);
  std::vector<int64_t> windows;
  for (size_t i = 0; i < n; ++i) {
    const bool slides =
        has_types ? is_sliding_type(types->as_array()[i]) : is_sliding(static_cast<int64_t>(i));
    if (slides && window == 0) {
      throw UserError(
          fmt::format("config.json: {}, but there is no window",
                      has_types ? "layer_types holds sliding_attention"
                                : fmt::format("layer {} has sliding attention in this family", i)),
          "set sliding_window, and use_sliding_window to true where the family has "
          "it; or make the layers full_attention");
    }
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

std::vector<int64_t> windows_of_later_layers(const Json& config, int64_t num_layers) {
  constexpr int64_t kWindow = 4096, kFullLayers = 28;  // transformers' defaults
  const bool is_used = flag_or(config, "use_sliding_window", false);
  const int64_t window = is_used ? sliding_window_or(config, kWindow) : 0;
  const int64_t first = at_least_zero_or(config, "max_window_layers", kMostPositions, kFullLayers);
  return layer_windows(config, num_layers, window,
                       [&](int64_t layer) { return window > 0 && layer >= first; });
}

}  // namespace weft
