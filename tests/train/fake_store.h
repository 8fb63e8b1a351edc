// tests/train/fake_store.h: an object store in memory that can be away, refuse, or fail at a call.
#pragma once

#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"
#include "io/object_store.h"

namespace weft::testing {

// What several clients share.
struct FakeObjects {
  std::mutex mutex;
  std::map<std::string, std::string> by_name;
  std::vector<std::string> calls;  // "put run.yaml" ...
};

class FakeStore : public ObjectStore {
 public:
  explicit FakeStore(std::shared_ptr<FakeObjects> objects) : objects_(std::move(objects)) {}

  std::atomic<int> num_failures = 0;  // of the next calls; negative: all
  // Called before each call with "put NAME"; may throw.
  void set_before(std::function<void(const std::string&)> before) {
    const std::lock_guard lock(before_mutex_);
    before_ = std::move(before);
  }

  std::string address() const override { return "s3://fake/run"; }
  std::vector<StoredObject> list(const std::string& folder) override {
    const auto lock = begin("list " + folder);
    std::vector<StoredObject> found;
    for (const auto& [name, bytes] : objects_->by_name) {
      if (folder.empty() || name.starts_with(folder + "/"))
        found.push_back({name, static_cast<int64_t>(bytes.size())});
    }
    return found;
  }
  std::optional<std::string> find(const std::string& name) override {
    const auto lock = begin("find " + name);
    const auto found = objects_->by_name.find(name);
    return found == objects_->by_name.end() ? std::nullopt : std::optional(found->second);
  }
  void get(const std::string& name, const std::filesystem::path& to) override {
    const auto lock = begin("get " + name);
    const auto found = objects_->by_name.find(name);
    if (found == objects_->by_name.end()) throw StoreAway("storage s3://fake/run: no " + name);
    std::ofstream(to, std::ios::binary) << found->second;
  }
  void put(const std::string& name, std::string_view bytes) override {
    const auto lock = begin("put " + name);
    objects_->by_name[name] = bytes;
  }
  void put_file(const std::string& name, const std::filesystem::path& from) override {
    put(name, read_file(from));
  }
  void copy(const std::string& name, const std::string& to) override {
    const auto lock = begin("copy " + to);
    objects_->by_name[to] = objects_->by_name.at(name);
  }
  void remove(const std::string& name) override {
    const auto lock = begin("remove " + name);
    objects_->by_name.erase(name);
  }
  void remove_folder(const std::string& name) override {
    const auto lock = begin("remove " + name + "/");
    std::erase_if(objects_->by_name,
                  [&](const auto& object) { return object.first.starts_with(name + "/"); });
  }

 private:
  std::unique_lock<std::mutex> begin(const std::string& call) {
    std::function<void(const std::string&)> before;
    {
      const std::lock_guard lock(before_mutex_);  // heartbeats call while a test sets it
      before = before_;
    }
    if (before) before(call);
    if (num_failures != 0) {
      if (num_failures > 0) --num_failures;
      throw StoreAway("storage s3://fake/run: " + call + " failed");
    }
    std::unique_lock lock(objects_->mutex);
    objects_->calls.push_back(call);
    return lock;
  }
  std::mutex before_mutex_;
  std::function<void(const std::string&)> before_;
  std::shared_ptr<FakeObjects> objects_;
};

}  // namespace weft::testing
