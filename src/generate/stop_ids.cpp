// generate/stop_ids.cpp: eos_token_id from a folder's files, and which tokens are not shown.
#include "generate/stop_ids.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/file.h"

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
  if (eos == nullptr || eos->is_null() || *eos == Json(-1)) return false;  // -1: none
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

std::vector<int32_t> read_stop_ids(const Tokenizer& tokenizer, const Json& config,
                                   const std::filesystem::path& folder) {
  const auto path = folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return find_stop_ids(&tokenizer, config, nullptr);
  const Json generation = parse_json(read_file(path, size_t{1} << 26), path.string());
  require(generation.is_object(), "{} holds {}, wanted an object", path.string(),
          generation.kind());
  return find_stop_ids(&tokenizer, config, &generation);
}

void move_special_stops(const Tokenizer& tokenizer, std::vector<std::string>* stops,
                        std::vector<int32_t>* stop_ids) {
  const auto is_moved = [&](const std::string& stop) {
    std::vector<int32_t> ids;
    tokenizer.encode(stop, false, ids);
    const auto is_special = [&](int32_t id) { return tokenizer.is_special(id); };
    const auto special = std::find_if(ids.begin(), ids.end(), is_special);
    if (special == ids.end()) return false;
    if (stop.find(tokenizer.decode(std::span(&*special, 1), false)) == std::string::npos) {
      throw UserError(
          fmt::format("--stop \"{}\" has characters that the tokenizer does not know, and would "
                      "never match",
                      stop),
          "leave it out: the model cannot write it");
    }
    if (ids.size() > 1) {
      throw UserError(
          fmt::format("--stop \"{}\" has a special token among others, and would never match",
                      stop),
          "give the special token alone: the continuation ends at it");
    }
    stop_ids->push_back(ids[0]);
    return true;
  };
  std::erase_if(*stops, is_moved);
}

bool has_text(int32_t id, const Tokenizer& tokenizer, const std::vector<int32_t>& stop_ids) {
  return id < tokenizer.num_ids() &&
         std::find(stop_ids.begin(), stop_ids.end(), id) == stop_ids.end();
}

std::string decode_continuation(const std::vector<int32_t>& ids, const Tokenizer& tokenizer,
                                const std::vector<int32_t>& stop_ids) {
  std::vector<int32_t> shown;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(shown),
               [&](int32_t id) { return has_text(id, tokenizer, stop_ids); });
  return tokenizer.decode(shown, true);
}

}  // namespace weft
