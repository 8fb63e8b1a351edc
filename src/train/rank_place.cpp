// train/rank_place.cpp: one rank alone, or one of a world.
#include "train/rank_place.h"

#include "comm/nodes/nodes.h"

namespace weft {

NodePlace RankPlace::node_now() const {
  NodePlace now = *node;
  if (const std::string store = world->store(); !store.empty()) now.store = store;
  return now;
}

std::unique_ptr<Ranks> make_ranks(const RunConfig& c, const Model& model, const RankPlace& place) {
  const Layout layout = resolve_layout(c, model);
  if (place.launched.all) {
    auto launched = std::make_unique<Ranks>(
        layout, nullptr, place.rank, place.launched.all->split(0, place.rank), c.launch.interface);
    launched->use_heartbeat(place.heartbeat);
    return launched;
  }
  if (!place.world) {
    auto alone = std::make_unique<Ranks>(layout);
    alone->use_heartbeat(place.heartbeat);
    return alone;
  }
  std::unique_ptr<Comm> all;
  const auto make_all = [place] {
    return make_nodes_comm(place.world, place.local_rank(), place.node_now());
  };
  if (place.node) all = make_all();
  auto ranks = std::make_unique<Ranks>(layout, place.world, place.rank, std::move(all),
                                       place.node ? place.node->host : c.launch.interface,
                                       place.node ? place.node->first_rank : 0);
  if (place.node) ranks->set_make_all(make_all);
  if (place.open_device) ranks->share_gpus(!place.nccl);
  ranks->use_nccl(place.nccl);
  return ranks;
}

}  // namespace weft
