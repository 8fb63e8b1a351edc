// generate/stop_ids.cpp: eos_token_id as the files of a folder give it.
#include "generate/stop_ids.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace weft {
namespace {

void add(std::vector<int32_t>& ids, const Json& value, const char* file) {
  require(value.is_int() && value.as_int() >= 0 &&
              value.as_int() <= std::numeric_limits<int32_t>::max(),
          "{}: eos_token_id holds {}, wanted a token id or a list of them", file, value.dump());
  const auto id = static_cast<int32_t>(value.as_int());
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

bool add_from(std::vector<int32_t>& ids, const Json& config, const char* file) {
  const Json* eos = config.find("eos_token_id");
  if (eos == nullptr || eos->is_null()) return false;
  if (eos->is_array()) {
    for (const Json& id : eos->as_array()) add(ids, id, file);
  } else {
    add(ids, *eos, file);
  }
  return true;
}

}  // namespace

std::vector<int32_t> find_stop_ids(const Tokenizer* tokenizer, const Json& config,
                                   const Json* generation_config) {
  std::vector<int32_t> ids;
  if (tokenizer && tokenizer->eos_id()) ids.push_back(*tokenizer->eos_id());
  if (!generation_config || !add_from(ids, *generation_config, "generation_config.json")) {
    add_from(ids, config, "config.json");
  }
  return ids;
}

}  // namespace weft
