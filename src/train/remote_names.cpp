// train/remote_names.cpp: folders that are renamed, moved or deleted in the mirror are so in the
// store.
#include "base/log.h"
#include "base/path.h"
#include "checkpoint/list.h"
#include "train/remote_run.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

// Folders and files that a run writes into the store, without their suffixes.
bool is_of_a_run(const std::string& folder) {
  return folder == "final" || folder == "final.writing" || folder == "checkpoints/best" ||
         folder == "checkpoints/best.writing" || folder.starts_with("checkpoints/step-") ||
         folder.starts_with("checkpoints/abandoned/");
}

}  // namespace

void RemoteRun::remove_there(const StoredFolder& folder) {
  const std::string last = last_file_of(folder.name);
  if (folder.is_complete) store_->remove(folder.name + "/" + last);
  store_->remove_folder(folder.name);
}

// An object store has no rename. `to` is complete before the old one is touched.
void RemoteRun::move_there(const StoredFolder& folder, const std::string& to) {
  const std::string last = last_file_of(folder.name);
  const auto copy = [&](const std::string& file) {
    store_->copy(folder.name + "/" + file, to + "/" + file);
  };
  for (const auto& [file, size] : folder.sizes) {
    if (file != last) copy(file);
  }
  if (folder.is_complete) copy(last);
  remove_there(folder);
}

// One that was cut short: a complete NAME.writing is newer than NAME, or the same.
void RemoteRun::finish_replacement(const std::string& name) {
  const StoreListing old = read_listing(store_->list(name));
  const StoreListing made = read_listing(store_->list(name + ".writing"));
  const StoredFolder *there = old.find(name), *next = made.find(name + ".writing");
  if (!next || !next->is_complete) return;
  if (there) remove_there(*there);
  move_there(*next, name);
}

// --overwrite: what marks it as a run's goes last.
void RemoteRun::delete_old_run() {
  const StoreListing listing = read_listing(store_->list(""));
  for (const auto& [name, folder] : listing.folders) {
    if (is_of_a_run(name)) remove_there(folder);
  }
  for (const std::string name : kRecordFiles) {
    if (name != "run.yaml" && listing.files.contains(name)) store_->remove(name);
  }
  state_.pushed.clear();
  state_.best.clear();
  state_.final.clear();
}

// What this start has renamed to NAME.damaged.
bool RemoteRun::was_set_aside(const std::string& name) const {
  for (const std::string& now : checkpoint_names()) {
    if (now.starts_with(name + ".damaged") && !names_at_start_.contains(now)) return true;
  }
  return false;
}

void RemoteRun::follow_names(int64_t step) {
  for (const char* name : {"checkpoints/best", "final"}) finish_replacement(name);
  const StoreListing listing = read_listing(store_->list(""));
  const auto is_used = [&listing](const std::string& name) {
    return listing.find(name) != nullptr;
  };
  for (const auto& [name, folder] : listing.folders) {
    const bool is_best = name == "checkpoints/best";
    const bool is_partial = name == "checkpoints/best.writing" || name == "final.writing";
    if (is_partial || (folder.step >= 0 && !folder.is_complete)) {  // a push that was cut short
      remove_there(folder);
      continue;
    }
    const bool is_here = path_kind(mirror_ / name) == PathKind::kFolder;
    if (is_here || !(is_best || folder.step >= 0)) continue;
    const bool is_damaged = was_set_aside(name);
    const bool was_here = names_at_start_.contains(name);
    // An older one that was not pulled. The one that the run starts from is here.
    if (!is_best && !is_damaged && !was_here && folder.step < step) continue;
    const std::string away = "checkpoints/abandoned/" + name.substr(name.find('/') + 1);
    const std::string to = unused_name(is_damaged ? name + ".damaged" : away, is_used);
    log_warning("{}/{} is now {}", address(), name, to);
    move_there(folder, to);
    state_.pushed.erase(name);
    if (is_best) state_.best.clear();
  }
}

}  // namespace weft
