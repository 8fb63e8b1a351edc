// train/remote_pull.cpp: the mirror becomes what the store is.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged.h"
#include "checkpoint/list.h"
#include "checkpoint/replace_folder.h"
#include "train/remote_run.h"
#include "train/status_file.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBest = "checkpoints/best";
constexpr const char* kFinal = "final";

std::optional<std::string> text_of(const fs::path& path) {
  if (path_kind(path) != PathKind::kFile) return std::nullopt;
  return read_file(path);
}

// Of the processes that train here, not of the run.
bool is_of_session(const std::string& name) {
  constexpr const char* kSessionFiles[] = {".lock", ".lease", kStatusFile, kSecretFile,
                                           kNodesMarker};
  return std::find(std::begin(kSessionFiles), std::end(kSessionFiles), name) !=
         std::end(kSessionFiles);
}

std::string name_of(const fs::path& checkpoint) {
  return "checkpoints/" + checkpoint.filename().string();
}

void rename_file(const fs::path& from, const fs::path& to) {
  std::error_code bad;
  fs::rename(from, to, bad);
  if (bad) throw_refused("rename", from, bad.value());
}

// A folder that is deleted halfway does not look like a damaged checkpoint.
void remove_renamed_first(const fs::path& folder) {
  const fs::path away = folder.string() + ".removing";
  remove_folder(away);
  move_folder(folder, away);
  remove_folder(away);
}

bool is_sound(const fs::path& folder) {
  try {
    CheckpointReader(folder).verify();
  } catch (const DamagedCheckpoint&) {
    return false;
  } catch (const UserError&) {  // another weft's: the start refuses it by name
  }
  return true;
}

}  // namespace

void RemoteRun::pull(bool with_checkpoints, int64_t keep) {
  StoreListing listing = read_listing(store_->list(""));
  if (is_own()) {
    drop_removed(listing);
  } else {
    if (with_checkpoints && listing.steps().empty()) refuse_lost_run();
    set_unsent_aside(listing);
    clear_foreign(listing);
    state_ = {};
    state_.best = folder_fingerprint(mirror_ / kBest);  // what is left there is the store's
  }
  state_.next_token = lease_.token();
  for (const StoredFolder* folder : listing.steps()) state_.pushed.insert(folder->name);
  keep_state();
  const std::vector<std::string> ahead = sound_of(unsent());
  if (!ahead.empty()) {
    log_warning("{} has what {} lacks, of a start whose uploads failed; uploading {}{}",
                mirror_.string(), address(), ahead.back(),
                ahead.size() > 1 ? fmt::format(" and {} more", ahead.size() - 1) : "");
    store_->repeat([this] { lease_.mark_used(); });
    push_all(keep);
    listing = read_listing(store_->list(""));
  }
  pull_files(listing, !ahead.empty());
  make_folder(mirror_ / "checkpoints");
  show_set_aside(listing);
  pull_replaced(listing, kFinal, &state_.final);
  if (with_checkpoints) {
    pull_replaced(listing, kBest, &state_.best);
    pull_checkpoints(listing);
  }
  if (!is_own()) state_.token = lease_.token_before();
  keep_state();
  names_at_start_ = checkpoint_names();
}

// A store without a lock, while the mirror has been in step with one: nobody has continued the run
// elsewhere.
void RemoteRun::refuse_lost_run() const {
  const std::vector<fs::path> here = list_checkpoints(mirror_);
  if (!lease_.token_before().empty() || state_.token.empty() || here.empty()) return;
  throw UserError(
      fmt::format("{} has lost this run, or it was deleted; {} still has {}", address(),
                  mirror_.string(), here.back().filename().string()),
      fmt::format("train it on under another name with --resume {}, or start over with --overwrite",
                  mirror_.string()));
}

// Their names are kept: the mirror may be the only place of these steps.
void RemoteRun::set_unsent_aside(const StoreListing& listing) {
  std::string lost;
  for (const std::string& name : unsent()) {
    // final/ has no checksums: its sizes say nothing.
    if (name == kFinal || !is_same_there(listing, name)) lost = name;
  }
  if (lost.empty()) return;
  const fs::path aside = unused_path(mirror_.string() + ".unsent");
  make_folder(aside);
  for (const std::string& name : folder_names(mirror_)) {
    if (!is_of_session(name)) move_folder(mirror_ / name, aside / name);
  }
  log_warning(
      "{} was changed elsewhere since this machine saved {}, which was never uploaded: it is kept "
      "in {}",
      address(), lost, aside.string());
}

bool RemoteRun::is_same_there(const StoreListing& listing, const std::string& name) {
  const StoredFolder* there = listing.find(name);
  return there && there->is_complete && has_same(*there, name);
}

// Nothing is known about a mirror that is not current, except that equal COMMITTED means equal
// checkpoints. What it knows itself goes last: killed before, the next start does the same.
void RemoteRun::clear_foreign(const StoreListing& listing) {
  for (const std::string& name : checkpoint_names()) {
    if (!is_same_there(listing, name)) remove_renamed_first(mirror_ / name);
  }
  for (const std::string& name : folder_names(mirror_)) {
    if (!is_of_session(name) && name != "checkpoints" && name != kMirrorState)
      remove_folder(mirror_ / name);
  }
  remove_folder(mirror_ / kMirrorState);
}

// What was pushed and is no longer there was removed by somebody.
void RemoteRun::drop_removed(const StoreListing& listing) {
  const auto is_there = [&listing](const std::string& name) {
    const StoredFolder* found = listing.find(name);
    return found && found->is_complete;
  };
  for (const fs::path& path : list_checkpoints(mirror_)) {
    const std::string name = name_of(path);
    if (state_.pushed.contains(name) && !is_there(name)) remove_renamed_first(path);
  }
  std::erase_if(state_.pushed, [&](const std::string& name) { return !is_there(name); });
  for (auto [name, known] : {std::pair(kBest, &state_.best), std::pair(kFinal, &state_.final)}) {
    if (known->empty() || is_there(name) || is_there(std::string(name) + ".writing")) continue;
    if (folder_fingerprint(mirror_ / name) == *known) remove_folder(mirror_ / name);
    known->clear();
  }
}

// A start asks only whether there are any.
void RemoteRun::show_set_aside(const StoreListing& listing) {
  for (const auto& [name, folder] : listing.folders) {
    const bool is_damaged =
        name.starts_with("checkpoints/step-") && name.find(".damaged") != std::string::npos;
    if (is_damaged || name.starts_with("checkpoints/abandoned/")) make_folder(mirror_ / name);
  }
}

void RemoteRun::pull_files(const StoreListing& listing, bool is_ahead) {
  for (const std::string name : kRecordFiles) {
    if (!listing.files.contains(name)) continue;
    if (is_ahead && path_kind(mirror_ / name) == PathKind::kFile) continue;
    pull_file(name);
  }
}

// Lines that were added here and not uploaded before a process died stay.
void RemoteRun::pull_file(const std::string& name) {
  const fs::path place = mirror_ / name, made = place.string() + ".pulled";
  store_->get(name, made);
  if (name.ends_with(".jsonl") && path_kind(place) == PathKind::kFile) {
    const MappedFile there(made), here(place);
    if (here.text().starts_with(there.text())) return remove_folder(made);
  }
  rename_file(made, place);
}

void RemoteRun::pull_replaced(const StoreListing& listing, const std::string& name,
                              std::string* known) {
  const StoredFolder* there = listing.find(name);
  const StoredFolder* next = listing.find(name + ".writing");
  if (next && next->is_complete) {  // a replacement that was cut short: pushed again
    fetch(*next, name);
    known->clear();
  } else if (there && there->is_complete) {
    const bool is_known = !known->empty() && folder_fingerprint(mirror_ / name) == *known;
    if (!is_known || !has_same(*there, name)) fetch(*there, name);
    *known = folder_fingerprint(mirror_ / name);
  }
}

// The newest; those before it only while none is sound.
void RemoteRun::pull_checkpoints(const StoreListing& listing) {
  const std::vector<const StoredFolder*> steps = listing.steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const fs::path here = mirror_ / (*step)->name;
    const bool was_here = is_checkpoint(here) && has_same(**step, (*step)->name);
    if (!was_here) fetch(**step, (*step)->name);
    if (is_sound(here)) return;
    if (!was_here) continue;
    log_warning("{} is damaged here: pulled again", here.string());
    fetch(**step, (*step)->name);
    if (is_sound(here)) return;
  }
}

bool RemoteRun::pull_folder(const std::string& name) {
  const StoreListing listing = read_listing(store_->list(name));
  const StoredFolder* there = listing.find(name);
  if (!there || !there->is_complete) return false;
  if (!has_same(*there, name)) fetch(*there, name);
  names_at_start_.insert(name);
  return true;
}

// By sizes and COMMITTED, which has the hashes of the rest; final/ has none.
bool RemoteRun::has_same(const StoredFolder& folder, const std::string& as) {
  for (const auto& [file, size] : folder.sizes) {
    std::error_code missing;
    const auto here = fs::file_size(mirror_ / as / file, missing);
    if (missing || static_cast<int64_t>(here) != size) return false;
  }
  const std::string last = last_file_of(folder.name);
  return text_of(mirror_ / as / last) == store_->find(folder.name + "/" + last);
}

void RemoteRun::fetch(const StoredFolder& folder, const std::string& as) {
  const fs::path place = mirror_ / as, made = place.string() + ".writing";
  int64_t bytes = 0;
  std::vector<std::string> files;
  for (const auto& [file, size] : folder.sizes) {
    files.push_back(file);
    bytes += size;
  }
  log_info("pulling {}/{}, {:.1f} MB", address(), folder.name, static_cast<double>(bytes) / 1e6);
  remove_folder(made);
  make_folder(made);
  ThreadPool pool(kTransfers);
  pool.run(static_cast<int64_t>(files.size()), [&](int64_t i, int) {
    const std::string& file = files[static_cast<size_t>(i)];
    store_->get(folder.name + "/" + file, made / file);
  });
  sync_directory(made);
  remove_folder(place);
  move_folder(made, place);
  sync_directory(place.parent_path());
}

}  // namespace weft
