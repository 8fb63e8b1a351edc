// train/remote_names.cpp: folders that are renamed, moved or deleted in the mirror are so in the
// store.
#include <algorithm>

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

// NAME, or NAME-2, -3 ...
std::string unused_name(const StoreListing& listing, const std::string& name) {
  std::string unused = name;
  for (int i = 2; listing.find(unused); ++i) unused = fmt::format("{}-{}", name, i);
  return unused;
}

}  // namespace

void RemoteRun::remove_there(const StoredFolder& folder) {
  const std::string last = last_file_of(folder.name);
  if (folder.is_complete) store_->remove(folder.name + "/" + last);
  for (const auto& [file, size] : folder.sizes) {
    if (file != last) store_->remove(folder.name + "/" + file);
  }
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

// --overwrite: what marks it as a run's goes last.
void RemoteRun::forget_old_run() {
  const StoreListing listing = read_listing(store_->list(""));
  for (const auto& [name, folder] : listing.folders) {
    if (is_of_a_run(name)) remove_there(folder);
  }
  for (const char* name : {"metrics.jsonl", "metrics.jsonl.abandoned", "tensor_hashes.jsonl",
                           "loss.png", "loss.svg", "events.jsonl"}) {
    if (listing.files.contains(name)) store_->remove(name);
  }
  state_.pushed.clear();
  state_.best.clear();
  state_.final.clear();
}

void RemoteRun::follow_names(int64_t step) {
  const StoreListing listing = read_listing(store_->list(""));
  for (const auto& [name, folder] : listing.folders) {
    const bool is_best = name == "checkpoints/best";
    const bool is_cut = name == "checkpoints/best.writing" || name == "final.writing";
    if (is_cut || (folder.step >= 0 && !folder.is_complete)) {  // a push that was cut short
      remove_there(folder);
      continue;
    }
    const bool is_here = path_kind(mirror_ / name) == PathKind::kFolder;
    if (is_here || !(is_best || folder.step >= 0)) continue;
    const std::string damaged = name + ".damaged";
    const bool is_damaged = path_kind(mirror_ / damaged) == PathKind::kFolder;
    if (!is_best && !is_damaged && folder.step <= step) continue;  // an older one, not pulled
    const std::string away = "checkpoints/abandoned/" + name.substr(name.find('/') + 1);
    const std::string to = unused_name(listing, is_damaged ? damaged : away);
    log_warning("{}/{} is now {}", address(), name, to);
    move_there(folder, to);
    state_.pushed.erase(name);
    if (is_best) state_.best.clear();
  }
}

}  // namespace weft
