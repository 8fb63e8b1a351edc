// comm/gloo/connect.cpp: how the members of a group find each other through the store.
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>

#include "base/error.h"
#include "comm/gloo/link.h"

namespace weft {
namespace {

// Our store as Gloo's Store interface: the keys of one group.
class GroupStore : public gloo::rendezvous::Store {
 public:
  GroupStore(GlooWorld* world, std::string prefix) : world_(world), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    world_->store().set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = world_->store().wait_for(prefix_ + key, world_->deadline_ms());
    if (!value) throw PeerError("the store has closed");
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  GlooWorld* world_;
  std::string prefix_;
};

}  // namespace

void GlooLink::connect() {
  world_->check_abort("connecting");
  GroupStore store(world_.get(), id_ + "|");
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
