// train/guarded_store.h: an object store that is changed only while a lock is held.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "io/object_store.h"

namespace weft {

// `check` throws where the lock is lost; it is called before every change, also before each retry
// of one that failed minutes ago.
class GuardedStore : public ObjectStore {
 public:
  GuardedStore(std::shared_ptr<ObjectStore> store, std::function<void()> check)
      : store_(std::move(store)), check_(std::move(check)) {}
  std::string address() const override { return store_->address(); }
  std::vector<StoredObject> list(const std::string& folder) override {
    return store_->list(folder);
  }
  std::optional<std::string> find(const std::string& name) override { return store_->find(name); }
  void get(const std::string& name, const std::filesystem::path& to) override {
    store_->get(name, to);
  }
  void put(const std::string& name, std::string_view bytes) override {
    check_();
    store_->put(name, bytes);
  }
  void put_file(const std::string& name, const std::filesystem::path& from) override {
    check_();
    store_->put_file(name, from);
  }
  void copy(const std::string& name, const std::string& to) override {
    check_();
    store_->copy(name, to);
  }
  void remove(const std::string& name) override {
    check_();
    store_->remove(name);
  }
  void remove_folder(const std::string& name) override {
    check_();
    store_->remove_folder(name);
  }

 private:
  std::shared_ptr<ObjectStore> store_;
  std::function<void()> check_;
};

}  // namespace weft
