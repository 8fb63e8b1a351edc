// train/retrying_store.h: an object store whose calls are repeated while it is away.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "io/object_store.h"

namespace weft {

// Files of a folder that are put or fetched at the same time.
inline constexpr int kTransfers = 4;

struct RetryTimes {
  std::chrono::milliseconds total{120000};  // from the first failure of a call
  std::chrono::milliseconds pause{1000};    // then 2, 4 ... seconds, at most 15
};

// UserErrors are thrown at once, a StoreAway when the time is over. The first failure of a call is
// logged.
class RetryingStore : public ObjectStore {
 public:
  RetryingStore(std::shared_ptr<ObjectStore> store, RetryTimes times)
      : store_(std::move(store)), times_(times) {}
  std::string address() const override { return store_->address(); }
  std::vector<StoredObject> list(const std::string& folder) override;
  std::optional<std::string> find(const std::string& name) override;
  void get(const std::string& name, const std::filesystem::path& to) override;
  void put(const std::string& name, std::string_view bytes) override;
  void put_file(const std::string& name, const std::filesystem::path& from) override;
  void copy(const std::string& name, const std::string& to) override;
  void remove(const std::string& name) override;
  void remove_folder(const std::string& name) override;
  void repeat(const std::function<void()>& call);  // any call that may throw StoreAway

 private:
  std::shared_ptr<ObjectStore> store_;
  RetryTimes times_;
};

}  // namespace weft
