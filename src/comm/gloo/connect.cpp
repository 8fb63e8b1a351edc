// comm/gloo/connect.cpp: how the members of a group find each other through the store.
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/gloo/link.h"

namespace weft {
namespace {

// Our store as Gloo's Store interface: the keys of one group. Gloo asks for a key of each other
// member in turn, one kind after the other ("rank_3", "3"), waits for it and then asks again: those
// of the next members are asked for with it, and values are kept.
class GroupStore : public gloo::rendezvous::Store {
 public:
  GroupStore(GlooWorld* world, std::string prefix, int me, int size)
      : world_(world), prefix_(std::move(prefix)), me_(me), size_(size) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    world_->store().set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    if (const auto kept = kept_.find(key); kept != kept_.end()) return kept->second;
    ask_for_next(key);
    const auto value = world_->store().wait_for(prefix_ + key, world_->deadline_ms());
    if (!value) throw PeerError("the store has closed");
    return kept_[key] = {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  void ask_for_next(const std::string& key) {
    const size_t digits = key.find_last_not_of("0123456789") + 1;
    if (key.size() == digits || key.size() - digits > 9) return;  // of no member
    const int member = std::stoi(key.substr(digits));
    std::vector<std::string> keys;
    for (int m = member; m < std::min(size_, member + StoreClient::kMostAhead); ++m) {
      if (m != me_) keys.push_back(fmt::format("{}{}{}", prefix_, key.substr(0, digits), m));
    }
    world_->store().ask_ahead(keys);
  }

  GlooWorld* world_;
  std::string prefix_;
  int me_, size_;
  std::map<std::string, std::vector<char>> kept_;
};

}  // namespace

void GlooLink::connect() {
  world_->check_abort("connecting");
  GroupStore store(world_.get(), id_ + "|", me_, size());
  auto context = std::make_shared<gloo::rendezvous::Context>(me_, size());
  context->setTimeout(std::chrono::milliseconds(world_->deadline_ms()));
  try {
    context->connectFullMesh(store, world_->device());
  } catch (const std::exception& e) {
    const std::string why = e.what();
    if (world_->wait_for_abort(0)) world_->check_abort("connecting");
    fail(fmt::format("rank {} could not connect to the {} other ranks of its group: {}",
                     world_rank(me_), size() - 1, why));
  }
  context_ = std::move(context);
}

}  // namespace weft
