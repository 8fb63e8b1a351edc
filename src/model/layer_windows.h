// model/layer_windows.h: which layers have a sliding window, and how many keys it holds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/json.h"

namespace weft {

// config.json's sliding_window: 0 where it is null, `otherwise` where it is absent.
int64_t sliding_window_or(const Json& config, int64_t otherwise);

// The window of every layer, 0: none. By layer_types; where the file has none, by is_sliding.
// UserError where a type is unknown, their number is not the layers', or one slides and window is
// 0.
std::vector<int64_t> layer_windows(const Json& config, int64_t num_layers, int64_t window,
                                   const std::function<bool(int64_t layer)>& is_sliding);

// Qwen's rule: with use_sliding_window, the layers from max_window_layers on.
std::vector<int64_t> windows_of_later_layers(const Json& config, int64_t num_layers);

}  // namespace weft
