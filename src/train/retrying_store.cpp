// train/retrying_store.cpp: growing pauses.
#include "train/retrying_store.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "base/log.h"

namespace weft {

void RetryingStore::repeat(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> until;  // from the first failure on
  auto pause = times_.pause;
  for (;;) {
    try {
      return call();
    } catch (const StoreAway& e) {
      const bool is_first = !until;
      if (is_first) until = Clock::now() + times_.total;
      if (Clock::now() + pause > *until) throw;
      if (is_first) log_warning("{}; trying again", e.what());
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(15000));
  }
}

std::vector<StoredObject> RetryingStore::list(const std::string& folder) {
  std::vector<StoredObject> found;
  repeat([&] { found = store_->list(folder); });
  return found;
}

std::optional<std::string> RetryingStore::find(const std::string& name) {
  std::optional<std::string> found;
  repeat([&] { found = store_->find(name); });
  return found;
}

void RetryingStore::get(const std::string& name, const std::filesystem::path& to) {
  repeat([&] { store_->get(name, to); });
}

void RetryingStore::put(const std::string& name, std::string_view bytes) {
  repeat([&] { store_->put(name, bytes); });
}

void RetryingStore::put_file(const std::string& name, const std::filesystem::path& from) {
  repeat([&] { store_->put_file(name, from); });
}

void RetryingStore::copy(const std::string& name, const std::string& to) {
  repeat([&] { store_->copy(name, to); });
}

void RetryingStore::remove(const std::string& name) {
  repeat([&] { store_->remove(name); });
}

void RetryingStore::remove_folder(const std::string& name) {
  repeat([&] { store_->remove_folder(name); });
}

}  // namespace weft
