// train/store_listing.cpp: names of objects as folders and files.
#include "train/store_listing.h"

#include <algorithm>

#include "checkpoint/list.h"

namespace weft {
namespace {

// checkpoints/step-N/FILE and checkpoints/abandoned/step-N/FILE: all before the last part.
size_t folder_size(const std::string& name) { return std::min(name.rfind('/'), name.size()); }

// Names come from the network and become paths below the mirror.
bool is_plain(const std::string& name) {
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = std::string_view(name).substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return name.find('\0') == std::string::npos;
}

int64_t step_of_folder(const std::string& folder) {
  constexpr std::string_view kAbove = "checkpoints/";
  return folder.starts_with(kAbove) ? step_of_name(folder.substr(kAbove.size())) : -1;
}

}  // namespace

const StoredFolder* StoreListing::find(const std::string& name) const {
  const auto found = folders.find(name);
  return found == folders.end() ? nullptr : &found->second;
}

std::vector<const StoredFolder*> StoreListing::steps() const {
  std::vector<const StoredFolder*> found;
  for (const auto& [name, folder] : folders) {
    if (folder.step >= 0 && folder.is_complete) found.push_back(&folder);
  }
  std::sort(found.begin(), found.end(),
            [](const StoredFolder* a, const StoredFolder* b) { return a->step < b->step; });
  return found;
}

StoreListing read_listing(const std::vector<StoredObject>& objects) {
  StoreListing listing;
  for (const StoredObject& object : objects) {
    if (!is_plain(object.name)) continue;  // no run has written it
    const size_t cut = folder_size(object.name);
    if (cut == object.name.size()) {
      listing.files[object.name] = object.size;
      continue;
    }
    StoredFolder& folder = listing.folders[object.name.substr(0, cut)];
    folder.name = object.name.substr(0, cut);
    folder.step = step_of_folder(folder.name);
    const std::string file = object.name.substr(cut + 1);
    folder.sizes[file] = object.size;
    folder.is_complete = folder.is_complete || file == last_file_of(folder.name);
  }
  return listing;
}

std::string last_file_of(const std::string& folder) {
  return folder.starts_with("checkpoints/") ? "COMMITTED" : "config.json";
}

}  // namespace weft
