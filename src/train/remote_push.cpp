// train/remote_push.cpp: uploads what the store lacks; the last file of a folder is uploaded last.
//
// A folder is verified before its upload, because it replaces others in the store. A damaged folder
// is not uploaded.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/list.h"
#include "io/safetensors.h"
#include "train/remote_run.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

std::string file_fingerprint(const fs::path& path) {
  std::error_code unknown;
  const auto size = fs::file_size(path, unknown);
  return fmt::format("{} {}", size, fs::last_write_time(path, unknown).time_since_epoch().count());
}

// Why a folder must not be uploaded; "": the folder is sound. final/ has no checksums, so only the
// sizes of its files are checked.
std::string damage_of(const fs::path& folder, bool has_checksums) {
  try {
    if (has_checksums) CheckpointReader(folder).verify();
    for (const std::string& file : folder_names(folder)) {
      if (!has_checksums && file.ends_with(".safetensors")) SafetensorsFile(folder / file);
    }
    return "";
  } catch (const UserError& e) {  // damaged, or in the format of another version
    return e.what();
  }
}

}  // namespace

std::vector<std::string> RemoteRun::sound_of(const std::vector<std::string>& names) {
  std::vector<std::string> sound;
  for (const std::string& name : names) {
    const std::string fingerprint = folder_fingerprint(mirror_ / name);
    Checked& last = checked_[name];
    if (last.fingerprint != fingerprint) {
      last = {fingerprint, damage_of(mirror_ / name, name != "final")};
      if (!last.damage.empty())
        log_warning("{} is damaged and was not uploaded; {} keeps its own version: {}",
                    (mirror_ / name).string(), address(), last.damage);
    }
    if (last.damage.empty()) sound.push_back(name);
  }
  return sound;
}

bool RemoteRun::is_damaged(const std::string& name) const {
  const auto last = checked_.find(name);
  return last != checked_.end() && !last->second.damage.empty() &&
         last->second.fingerprint == folder_fingerprint(mirror_ / name);
}

std::vector<std::string> RemoteRun::unsent() const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const std::string& known) {
    if (path_kind(mirror_ / name / last_file_of(name)) != PathKind::kFile) return;
    if (folder_fingerprint(mirror_ / name) != known) names.push_back(name);
  };
  add("checkpoints/best", state_.best);  // before steps, whose state.json has its value
  for (const fs::path& path : list_checkpoints(mirror_)) {
    std::string name = "checkpoints/" + path.filename().string();
    if (!state_.pushed.contains(name)) names.push_back(std::move(name));
  }
  add("final", state_.final);
  return names;
}

void RemoteRun::push_all(int64_t keep) {
  push_records(*store_, Events::kNot);  // a checkpoint's steps have their lines before it
  for (const std::string& name : sound_of(unsent())) {
    push_folder(name);
    keep_state();
  }
  push_records(*store_, Events::kWhereAllIsSent);
  if (may_have_partial_) remove_partial();
  may_have_partial_ = false;
  prune(keep);
}

// A start on another machine must find the folders that events.jsonl names, except damaged ones. So
// events.jsonl is uploaded after them.
void RemoteRun::push_records(ObjectStore& store, Events events) {
  const std::vector<std::string> left =
      events == Events::kWhereAllIsSent ? unsent() : std::vector<std::string>{};
  const bool has_events =
      events == Events::kWhereAllIsSent &&
      std::all_of(left.begin(), left.end(), [this](const std::string& n) { return is_damaged(n); });
  const std::lock_guard lock(records_mutex_);
  for (const char* name : kRecordFiles) {
    if (std::string_view(name) == "events.jsonl" && !has_events) continue;
    const fs::path path = mirror_ / name;
    if (path_kind(path) != PathKind::kFile) continue;
    const std::string now = file_fingerprint(path);
    if (put_[name] == now) continue;
    store.put_file(name, path);
    put_[name] = now;
  }
}

void RemoteRun::push_folder(const std::string& name) {
  const std::string fingerprint = folder_fingerprint(mirror_ / name);
  if (name == "checkpoints/best" || name == "final") {
    replace(name);
    (name == "final" ? state_.final : state_.best) = fingerprint;
  } else {
    upload(name, name);
    state_.pushed.insert(name);
  }
}

// Objects that a former attempt left stay or are overwritten, those of other names are removed.
void RemoteRun::upload(const std::string& name, const std::string& as) {
  const std::string last = last_file_of(as);
  std::vector<std::string> files = folder_names(mirror_ / name);
  const StoreListing there = read_listing(store_->list(as));
  if (const StoredFolder* old = there.find(as)) {
    if (old->is_complete) store_->remove(as + "/" + last);
    for (const auto& [file, size] : old->sizes) {
      if (std::find(files.begin(), files.end(), file) == files.end())
        store_->remove(as + "/" + file);
    }
  }
  std::erase(files, last);
  ThreadPool pool(kTransfers);
  pool.run(static_cast<int64_t>(files.size()), [&](int64_t i, int) {
    const std::string& file = files[static_cast<size_t>(i)];
    store_->put_file(as + "/" + file, mirror_ / name / file);
  });
  store_->put_file(as + "/" + last, mirror_ / name / last);
}

// The old one stays until the new one is there as a whole, under NAME.writing.
void RemoteRun::replace(const std::string& name) {
  const std::string next = name + ".writing";
  finish_replacement(name);
  if (store_->list(name).empty()) return upload(name, name);
  upload(name, next);
  const StoreListing old = read_listing(store_->list(name));
  if (const StoredFolder* folder = old.find(name)) remove_there(*folder);
  const StoreListing made = read_listing(store_->list(next));
  if (const StoredFolder* folder = made.find(next)) move_there(*folder, name);
}

void RemoteRun::prune(int64_t keep) {
  const StoreListing listing = read_listing(store_->list("checkpoints"));
  const std::vector<const StoredFolder*> steps = listing.steps();
  const auto count = static_cast<int64_t>(steps.size());
  for (int64_t i = 0; i < count - std::max<int64_t>(keep, 1); ++i) {
    remove_there(*steps[static_cast<size_t>(i)]);
    const std::string& name = steps[static_cast<size_t>(i)]->name;
    // While the mirror holds it, it must not look as if it had never been pushed.
    if (path_kind(mirror_ / name) == PathKind::kNothing) state_.pushed.erase(name);
  }
}

void RemoteRun::remove_partial() {
  const StoreListing listing = read_listing(store_->list("checkpoints"));
  for (const auto& [name, folder] : listing.folders) {
    if (folder.step >= 0 && !folder.is_complete) remove_there(folder);
  }
}

}  // namespace weft
