// train/remote_run.h: a run in an object store: its lock, and a mirror that is kept in step.
//
// docs/design/0013-object-stores.md has the flow. All code but this works on the mirror.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "io/object_store.h"
#include "train/detachable_job.h"
#include "train/lease.h"
#include "train/mirror.h"
#include "train/retrying_store.h"
#include "train/store_listing.h"

namespace weft {

struct RemoteTimes {
  LeaseTimes lease;
  RetryTimes retry;
  std::chrono::milliseconds records{3000};  // between two puts of metrics and events
};
// With the retry time of WEFT_STORAGE_RETRY_S, where it is set.
RemoteTimes remote_times();

class RemoteRun {
 public:
  // Takes the store's lock; the caller holds the mirror's RunLock. UserError where another process
  // holds it, or the store refuses; StoreAway.
  RemoteRun(std::shared_ptr<ObjectStore> store, std::filesystem::path mirror, RemoteTimes times);
  // For a process that takes the place of one that died after begin(), instead of pull() and
  // begin(): the store's lock stays held, the mirror as it is. No request is made here, so that a
  // store that is away holds up nothing. RunError where the mirror does not know the lock's token.
  struct Reopen {};
  RemoteRun(Reopen reopen, std::shared_ptr<ObjectStore> store, std::filesystem::path mirror,
            RemoteTimes times);
  ~RemoteRun();  // tries once to put the records, and releases the lock
  RemoteRun(const RemoteRun&) = delete;
  RemoteRun& operator=(const RemoteRun&) = delete;

  std::string address() const { return store_->address(); }
  const std::filesystem::path& mirror() const { return mirror_; }

  // Makes the mirror what the store is, as far as a start looks at it; uploads first what only the
  // mirror has, and keeps `keep` step-N there. with_checkpoints false (--overwrite): without their
  // files. UserError where the store has lost the run, and the mirror has checkpoints of it.
  void pull(bool with_checkpoints, int64_t keep = std::numeric_limits<int64_t>::max());
  // One folder more, by its name below the run (checkpoints/step-00000010); false: there is none.
  bool pull_folder(const std::string& name);
  // The run starts at `step`: the store follows what prepare_run_dir has renamed, moved or deleted,
  // and the thread that puts metrics and events begins.
  void begin(int64_t step, bool overwrite);
  // Puts everything that the store does not have yet, then removes all but the newest `keep` step-N
  // there. RunError "storage ..." where that fails.
  void push(int64_t keep);
  // The same, for a caller that must not be held up when the ranks have to park: where `is_left`
  // becomes true it returns, and the push goes on.
  void push_until(int64_t keep, const std::function<bool()>& is_left);
  // Until a push that was left behind is done, or `is_left` becomes true: before a folder is
  // removed or replaced in the mirror.
  void wait_for_push(const std::function<bool()>& is_left) { pushing_.wait(is_left); }
  // The end of a run: the last push, and RunError naming the mirror where the store lacks anything.
  void finish(int64_t keep);
  // RunError where another process has taken the run over: this one stores nothing more.
  void check_lock();
  bool has_lost_lock() const { return lease_.is_lost(); }

 private:
  bool is_own() const;  // nobody else has changed the store since the mirror was written
  void keep_state();
  std::set<std::string> checkpoint_names() const;  // of the mirror: checkpoints/...
  // remote_pull.cpp
  void refuse_lost_run() const;
  void set_unsent_aside(const StoreListing& listing);
  void clear_foreign(const StoreListing& listing);
  void drop_removed(const StoreListing& listing);
  void show_set_aside(const StoreListing& listing);
  void pull_files(const StoreListing& listing, bool is_ahead);
  void pull_file(const std::string& name);
  void pull_checkpoints(const StoreListing& listing);
  void pull_replaced(const StoreListing& listing, const std::string& name, std::string* known);
  bool has_same(const StoredFolder& folder, const std::string& as);
  bool is_same_there(const StoreListing& listing, const std::string& name);
  void fetch(const StoredFolder& folder, const std::string& as);
  // remote_push.cpp
  std::vector<std::string> unsent() const;  // names of folders
  // Returns the sound folders of `names`; logs the damaged ones.
  std::vector<std::string> sound_of(const std::vector<std::string>& names);
  bool is_damaged(const std::string& name) const;  // found damaged, and unchanged since
  void push_all(int64_t keep);
  enum class Events { kWhereAllIsSent, kNot };  // the first only where nobody else pushes
  void push_records(ObjectStore& store, Events events);
  void push_folder(const std::string& name);
  void upload(const std::string& name, const std::string& as);
  void replace(const std::string& name);
  void prune(int64_t keep);
  void remove_partial();
  void put_records_periodically();
  // remote_names.cpp
  void remove_there(const StoredFolder& folder);
  void move_there(const StoredFolder& folder, const std::string& to);
  void finish_replacement(const std::string& name);
  void delete_old_run();
  bool was_set_aside(const std::string& name) const;
  void follow_names(int64_t step);

  std::filesystem::path mirror_;
  // raw_: for the lock itself; once_: changed only while the lock is held; store_: with retries.
  std::shared_ptr<ObjectStore> raw_, once_;
  std::shared_ptr<RetryingStore> store_;
  RemoteTimes times_;
  MirrorState state_;
  Lease lease_;
  bool may_have_partial_ = false;           // of a process that died while it pushed or pruned
  std::set<std::string> names_at_start_;    // checkpoint_names() after the pull
  std::map<std::string, std::string> put_;  // records in the store: size and time of the file here
  struct Checked {
    std::string fingerprint, damage;  // damage is empty where the folder is sound
  };
  std::map<std::string, Checked> checked_;  // local folders that were verified for upload

  std::mutex records_mutex_, mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread thread_;
  DetachableJob pushing_;  // last: its job uses all of the above
};

}  // namespace weft
