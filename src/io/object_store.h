// io/object_store.h: objects below one address of an object store (s3://bucket/prefix).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace weft {

// The store cannot be reached or has failed: it may be back later. What will not pass by itself
// (credentials, a missing bucket) is a UserError.
class StoreAway : public RunError {
 public:
  using RunError::RunError;
};

struct StoredObject {
  std::string name;  // below the address: checkpoints/best/index.json
  int64_t size = 0;
};

// Thread-safe. A call is tried again for a few seconds, then UserError or StoreAway.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  virtual std::string address() const = 0;
  // All objects below address/folder ("": all), sorted by name; empty where there is none.
  virtual std::vector<StoredObject> list(const std::string& folder) = 0;
  virtual std::optional<std::string> find(const std::string& name) = 0;  // its bytes
  virtual void get(const std::string& name, const std::filesystem::path& to) = 0;
  virtual void put(const std::string& name, std::string_view bytes) = 0;
  virtual void put_file(const std::string& name, const std::filesystem::path& from) = 0;
  virtual void copy(const std::string& name, const std::string& to) = 0;
  virtual void remove(const std::string& name) = 0;  // one that is missing is no error
  // All below it, in any order; and the empty objects that stand for folders in some stores.
  virtual void remove_folder(const std::string& name) = 0;
};

// UserError where the address is not of a kind that this build knows.
std::unique_ptr<ObjectStore> open_object_store(const std::string& address);

}  // namespace weft
