// train/recovery.cpp: texts and images of slots.
#include "train/recovery.h"

#include "base/error.h"
#include "base/path.h"
#include "checkpoint/list.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

SnapshotSlots::View view_of(SnapshotSlots& slots, int rank, int64_t step) {
  const auto view = slots.find(rank, step);
  ensure(view.has_value(), fmt::format("rank {} has no snapshot of step {}", rank, step));
  return *view;
}

// Collective.
bool has_everywhere(const RankPlace& place, Ranks& ranks, int64_t step) {
  return agree_on_success(ranks.world(), place.slots->has(place.local_rank(), step));
}

// As Trainer::loop decides it. The last step is saved at the end of the run.
bool is_checkpoint_due(const RunConfig& c, const SlotText& text, int64_t step) {
  const int64_t every = c.checkpoint.every;
  if (step == 0 || step >= text.about.at("total").as_int()) return false;
  if (every > 0) return step % every == 0;
  return text.state.at("position").as_int() == 0 && text.state.at("part").as_int() == 0;
}

int64_t step_of_best(const std::filesystem::path& dir) {
  const std::filesystem::path best = dir / "checkpoints" / "best";
  if (path_kind(best) == PathKind::kNothing || !is_checkpoint(best)) return -1;
  return CheckpointReader(best).state().at("step").as_int();
}

}  // namespace

SlotText read_slot_text(const RankPlace& place, int64_t step) {
  const Json text =
      parse_json(view_of(*place.slots, place.local_rank(), step).text, "the text of a snapshot");
  return {text.at("state"), text.at("about")};
}

CheckpointReader open_snapshots(const RankPlace& place, int64_t step, RemoteSlots* others) {
  SnapshotSlots& slots = *place.slots;
  StoredTensors tensors;
  SliceReader::Images images;
  const auto add = [&](int rank, const std::string& layout, SliceReader::Image image) {
    const std::string what = fmt::format("the snapshot of rank {}", rank);
    images[rank_file(rank)] = std::move(image);
    merge_tensors(tensors, index_from_json(parse_json(layout, what), what));
  };
  const int first = place.node ? place.node->first_rank : 0;
  for (int r = 0; r < slots.num_ranks(); ++r)
    add(first + r, slots.layout(r), {view_of(slots, r, step).data});
  for (int rank = 0; place.node && rank < place.node->num_ranks; ++rank) {
    if (rank >= first && rank < first + slots.num_ranks()) continue;
    add(rank, others->layout(rank, step),
        {nullptr, [others, rank, step](size_t begin, size_t end, const SliceReader::Take& take) {
           others->read(rank, step, begin, end, take);
         }});
  }
  return {fmt::format("the snapshots of step {}", step), std::move(tensors),
          read_slot_text(place, step).state, std::move(images)};
}

Json counters_to_json(const DataCounters& counters) {
  Json::Array numbers;
  for (const auto member : kDataCounts) numbers.push_back(Json(counters.*member));
  return Json(std::move(numbers));
}

DataCounters counters_from_json(const Json& kept) {
  DataCounters counters;
  const Json::Array& numbers = kept.as_array();
  for (size_t i = 0; i < std::size(kDataCounts); ++i)
    counters.*kDataCounts[i] = numbers.at(i).as_int();
  return counters;
}

Saver::Again find_unfinished_save(const RankPlace& place, Ranks& ranks, const RunConfig& c,
                                  const std::filesystem::path& dir, int64_t step) {
  const int64_t held = read_slot_text(place, step).about.at("held").as_int();  // of all alike
  const int64_t saved = held >= 0 && has_everywhere(place, ranks, held) ? held : step;
  const SlotText text = read_slot_text(place, saved);
  constexpr int64_t kBest = 1, kCheckpoint = 2;
  const int64_t missing = agree_on_number(ranks, [&] {
    int64_t found = 0;
    const bool is_best = text.about.at("best_step").as_int() == saved;
    if (is_best && step_of_best(dir) != saved) found |= kBest;
    if (is_checkpoint_due(c, text, saved) && !is_checkpoint(checkpoint_path(dir, saved)))
      found |= kCheckpoint;
    return found;
  });
  return {saved, text.state, (missing & kBest) != 0, (missing & kCheckpoint) != 0};
}

}  // namespace weft
