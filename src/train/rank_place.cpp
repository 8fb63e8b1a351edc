// train/rank_place.cpp: one rank alone, or one of a world.
#include "train/rank_place.h"

namespace weft {

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
  auto ranks =
      std::make_unique<Ranks>(layout, place.world, place.rank, nullptr, c.launch.interface);
  if (place.open_device) ranks->share_gpus(!place.nccl);
  ranks->use_nccl(place.nccl);
  return ranks;
}

}  // namespace weft
