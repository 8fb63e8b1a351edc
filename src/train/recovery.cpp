// train/recovery.cpp: texts and images of slots.
#include "train/recovery.h"

#include <fmt/core.h>

#include <utility>

#include "base/error.h"
#include "base/path.h"
#include "checkpoint/coverage.h"
#include "checkpoint/list.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

// What memory does not have must come from storage: the world notes it, for the supervisor. A
// PeerError, since the other ranks are to park: this one is no worse than they are.
template <typename Fn>
auto reading_memory(const RankPlace& place, int64_t step, const Fn& fn) {
  try {
    return fn();
  } catch (const Error& e) {
    const std::string why =
        fmt::format("rank {} cannot read the snapshots of step {}: {}", place.rank, step, e.what());
    place.world->note_memory_fault(why);
    throw PeerError(why);
  }
}

// Slots of some ranks, with what they hold of what this one needs.
struct SlotParts {
  explicit SlotParts(const std::vector<Slice>& needed) : coverage(needed) {}

  void add(int rank, const std::string& layout, SliceReader::Image image) {
    const std::string what = fmt::format("the snapshot of rank {}", rank);
    StoredTensors part = index_from_json(parse_json(layout, what), what);
    coverage.add(part);
    merge_tensors(tensors, std::move(part));
    images[rank_file(rank)] = std::move(image);
  }

  Coverage coverage;
  StoredTensors tensors;
  SliceReader::Images images;
};

SnapshotSlots::View view_of(SnapshotSlots& slots, int rank, int64_t step) {
  const auto view = slots.find(rank, step);
  ensure(view.has_value(), fmt::format("rank {} has no snapshot of step {}", rank, step));
  return *view;
}

SlotText own_text(const RankPlace& place, int64_t step) {
  const Json text =
      parse_json(view_of(*place.slots, place.local_rank(), step).text, "the text of a snapshot");
  return {text.at("state"), text.at("about")};
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

// This rank's own first, which with zero3 is all that it needs.
void add_own_node(const RankPlace& place, int64_t step, SlotParts* parts) {
  SnapshotSlots& slots = *place.slots;
  for (int i = 0; i < slots.num_ranks() && !parts->coverage.is_complete(); ++i) {
    const int r = (place.local_rank() + i) % slots.num_ranks();
    parts->add(place.rank - place.local_rank() + r, slots.layout(r),
               {view_of(slots, r, step).data});
  }
}

void add_node(const RankPlace& place, int64_t node, int64_t step, RemoteSlots* others,
              SlotParts* parts) {
  const int per_node = place.slots->num_ranks();
  const std::vector<std::string> layouts = others->layouts(node, step);
  for (int r = 0; r < per_node; ++r) {
    const int rank = static_cast<int>(node) * per_node + r;
    const auto fetch = [&place, others, rank, step](size_t begin, size_t end,
                                                    const SliceReader::Take& take) {
      reading_memory(place, step, [&] { others->read(rank, step, begin, end, take); });
    };
    parts->add(rank, layouts[static_cast<size_t>(r)], {nullptr, fetch});
  }
}

// One question per node, to the nearest in the ring first: not all ranks ask the same agent.
void add_other_nodes(const RankPlace& place, int64_t step, RemoteSlots* others, SlotParts* parts) {
  const int per_node = place.slots->num_ranks(), num_nodes = place.node->num_ranks / per_node;
  for (int i = 1; i < num_nodes && !parts->coverage.is_complete(); ++i)
    add_node(place, (place.rank / per_node + i) % num_nodes, step, others, parts);
}

// Of data-parallel ranks that see the same rows one counts.
Json sum_of_counters(const RankPlace& place, int64_t step, int tp, RemoteSlots* previous) {
  DataCounters sum;
  const auto num_nodes = static_cast<int>(previous->nearest_nodes().size());
  for (int r = 0; r < num_nodes * place.slots->num_ranks(); r += tp) {
    const Json text = parse_json(previous->text(r, step), "the text of a snapshot");
    sum.add(counters_from_json(text.at("about").at("counters")));
  }
  return counters_to_json(sum);
}

}  // namespace

SlotText read_slot_text(const RankPlace& place, int64_t step) {
  return reading_memory(place, step, [&] { return own_text(place, step); });
}

SlotText read_previous_text(const RankPlace& place, const Ranks& ranks, int64_t step,
                            RemoteSlots* previous) {
  return reading_memory(place, step, [&]() -> SlotText {
    const Json text = parse_json(previous->text(0, step), "the text of a snapshot");
    SlotText found{text.at("state"), text.at("about")};
    const bool counts = ranks.dp_rank() == 0;
    found.about.set("counters", counts ? sum_of_counters(place, step, ranks.layout().tp, previous)
                                       : counters_to_json({}));
    return found;
  });
}

void check_no_newer(const RankPlace& place, const std::filesystem::path& dir, int64_t step) {
  reading_memory(place, step, [&] {
    const std::vector<std::filesystem::path> all = list_checkpoints(dir);
    if (!all.empty() && step_of_name(all.back().filename()) > step)
      throw PeerError(fmt::format("{} is newer", all.back().string()));
  });
}

CheckpointReader open_previous(const RankPlace& place, int64_t step,
                               const std::vector<Slice>& needed, Json state,
                               RemoteSlots* previous) {
  return reading_memory(place, step, [&]() -> CheckpointReader {
    SlotParts parts(needed);
    for (const int64_t node : previous->nearest_nodes()) {
      if (!parts.coverage.is_complete()) add_node(place, node, step, previous, &parts);
    }
    if (const std::string fault = parts.coverage.fault(); !fault.empty()) throw PeerError(fault);
    return {fmt::format("the snapshots of step {}", step), std::move(parts.tensors),
            std::move(state), std::move(parts.images)};
  });
}

CheckpointReader open_snapshots(const RankPlace& place, int64_t step,
                                const std::vector<Slice>& needed, RemoteSlots* others) {
  return reading_memory(place, step, [&]() -> CheckpointReader {
    SlotParts parts(needed);
    add_own_node(place, step, &parts);
    if (place.node) add_other_nodes(place, step, others, &parts);
    if (const std::string fault = parts.coverage.fault(); !fault.empty()) throw PeerError(fault);
    return {fmt::format("the snapshots of step {}", step), std::move(parts.tensors),
            own_text(place, step).state, std::move(parts.images)};
  });
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
  return find_missing_save(ranks, c, dir, saved, read_slot_text(place, saved));
}

Saver::Again find_missing_save(Ranks& ranks, const RunConfig& c, const std::filesystem::path& dir,
                               int64_t saved, const SlotText& text) {
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
