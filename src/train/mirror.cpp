// train/mirror.cpp: names and the state file.
#include "train/mirror.h"

#include <algorithm>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/path.h"
#include "io/file_system.h"

namespace weft {
namespace fs = std::filesystem;
MirrorState read_mirror_state(const fs::path& mirror) {
  if (path_kind(mirror / kMirrorState) != PathKind::kFile) return {};
  try {
    const Json json = parse_json(read_file(mirror / kMirrorState), kMirrorState);
    MirrorState state;
    state.token = json.at("token").as_string();
    state.next_token = json.at("next_token").as_string();
    state.best = json.at("best").as_string();
    state.final = json.at("final").as_string();
    for (const Json& name : json.at("pushed").as_array()) state.pushed.insert(name.as_string());
    return state;
  } catch (const UserError&) {
    return {};
  }
}

void write_mirror_state(const fs::path& mirror, const MirrorState& state) {
  Json json;
  json.set("token", Json(state.token));
  json.set("next_token", Json(state.next_token));
  json.set("best", Json(state.best));
  json.set("final", Json(state.final));
  Json::Array pushed;
  for (const std::string& name : state.pushed) pushed.emplace_back(name);
  json.set("pushed", Json(std::move(pushed)));
  write_file_atomic(mirror / kMirrorState, json.dump() + "\n");
}

std::string folder_fingerprint(const fs::path& folder) {
  if (path_kind(folder) != PathKind::kFolder) return "";
  std::string all;
  for (const std::string& name : folder_names(folder)) {
    std::error_code unknown;
    const auto size = fs::file_size(folder / name, unknown);
    const auto time = fs::last_write_time(folder / name, unknown).time_since_epoch().count();
    all += fmt::format("{} {} {}\n", name, size, time);
  }
  return all.empty() ? "" : hash_hex(hash_text(all));
}

fs::path mirror_of(const std::string& address, const std::string& fallback) {
  const std::string plain = without_query(address);
  const fs::path below = fallback.empty() ? cache_folder() / "runs" : fs::path(fallback);
  if (fallback.empty() && cache_folder().empty()) {
    throw UserError(fmt::format("{} needs a folder for its mirror, but neither XDG_CACHE_HOME nor "
                                "HOME names one",
                                plain),
                    "set checkpoint.fallback to a folder");
  }
  const std::string name = plain.substr(plain.rfind('/') + 1);
  return below / fmt::format("{}-{}", name.substr(0, 100), hash_hex(hash_text(plain)));
}

std::string without_query(const std::string& address) {
  std::string plain = address.substr(0, address.find('?'));
  while (plain.ends_with('/')) plain.pop_back();
  return plain;
}

bool is_remote(const std::string& path) { return is_uri(path); }

std::string join_address(const std::string& storage, const std::string& name) {
  const size_t query = std::min(storage.find('?'), storage.size());
  return without_query(storage) + "/" + name + storage.substr(query);
}

}  // namespace weft
