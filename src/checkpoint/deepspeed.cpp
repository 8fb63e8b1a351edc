// checkpoint/deepspeed.cpp: ZeRO's flat partitions, joined and cut into the model's tensors.
//
// ZeRO 1 and 2 flatten each parameter group, pad it and cut it into one part per rank: the parts
// one after the other are the group, whose tensors follow each other. ZeRO 3 cuts every tensor by
// itself: each rank holds ceil(n / ranks) elements of it, the tensors one after the other, in
// sub-groups. Adam's states have the layout of the weights.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/deepspeed_files.h"
#include "checkpoint/deepspeed_universal.h"
#include "checkpoint/foreign.h"
#include "checkpoint/torch_pieces.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Archive = std::shared_ptr<const TorchArchive>;

// The flat buffers of all ranks: [rank][group].
using Groups = std::vector<std::vector<TorchPiece>>;

int64_t length(const TorchPiece& piece) { return piece.end - piece.begin; }

class ZeroReader {
 public:
  explicit ZeroReader(const fs::path& folder) : folder_(folder) {
    const DeepSpeedFiles files = list_deepspeed_files(folder);
    for (const fs::path& path : files.model) model_.push_back(open_torch_archive(path));
    for (const fs::path& path : files.optim) optim_.push_back(open_torch_archive(path));
    for (const Archive& file : optim_) zero_.push_back(file->root().at("optimizer_state_dict"));
  }

  void read(LogicalModel& out) {
    describe(out);
    add_buffers(out);
    if (!zero_.empty()) {
      require_ranks();
      add_partitions(out);
      add_frozen(out);
    }
    if (stage_ != 3) add_held(out);
    add_shared(out);
  }

 private:
  PickleValue state() const { return model_[0]->root(); }
  // A dict of the model's file; none where it is absent or None.
  std::optional<PickleValue> dict_of(const Archive& file, const char* key) const {
    const auto found = file->root().find(key);
    return found && found->is_dict() ? found : std::nullopt;
  }

  void describe(LogicalModel& out) {
    if (!zero_.empty()) stage_ = zero_[0].find("fp32_flat_groups") ? 3 : stage_of(zero_[0]);
    out.format = stage_ > 0 ? fmt::format("DeepSpeed ZeRO-{} checkpoint", stage_)
                            : std::string("DeepSpeed checkpoint without ZeRO");
    out.details.set("ranks", uint64_t{std::max<size_t>(zero_.size(), 1)});
    if (const auto step = state().find("global_steps"); step && step->is_int())
      out.details.set("step", step->as_int());
    if (const auto version = state().find("ds_version"); version && version->is_string())
      out.details.set("deepspeed", std::string(version->as_string()));
    if (const auto size = state().find("mp_world_size"); size && size->is_int())
      require(size->as_int() == 1, "{} is of {} tensor-parallel ranks, which are not read",
              folder_.string(), size->as_int());
  }
  static int stage_of(const PickleValue& zero) {
    const auto stage = zero.find("zero_stage");
    if (!stage) return 1;  // older files of bf16
    const PickleValue value = stage->is_int() ? *stage : stage->arguments()[0];
    const int64_t n = value.as_int();
    require(n >= 1 && n <= 3, "ZeRO stage {}, wanted 1, 2 or 3", n);
    return static_cast<int>(n);
  }

  void require_ranks() const {
    const auto count = zero_[0].find("partition_count");
    if (!count) return;
    int64_t ranks = 0;
    if (count->is_int()) ranks = count->as_int();
    for (size_t i = 0; count->is_list() && i < count->size(); ++i)
      ranks = std::max(ranks, (*count)[i].as_int());
    if (ranks != static_cast<int64_t>(zero_.size())) {
      throw UserError(fmt::format("{} has {} files *{}, but {} ranks wrote it", folder_.string(),
                                  zero_.size(), "_optim_states.pt", ranks),
                      kWholeDeepSpeedFolder);
    }
  }

  void add(LogicalModel& out, LogicalTensor t) {
    if (names_.insert(t.name).second) out.weights.push_back(std::move(t));
  }

  void add_buffers(LogicalModel& out) {
    const auto names = state().find("buffer_names");
    if (!names || !names->is_list()) return;
    const PickleValue module = state().at("module");
    for (size_t i = 0; i < names->size(); ++i) {
      const std::string name((*names)[i].as_string());
      const auto value = module.find(name);
      if (!value) continue;  // not persistent
      const TorchPiece piece = whole_piece(*model_[0], *value, name);
      add(out, in_fp32(join_pieces(name, piece.tensor.shape, {piece})));
    }
  }

  Groups flat_groups(const char* key) const {
    Groups out(zero_.size());
    for (size_t r = 0; r < zero_.size(); ++r) {
      const PickleValue list = zero_[r].at(key);
      for (size_t g = 0; g < list.size(); ++g)
        out[r].push_back(whole_piece(*optim_[r], list[g], fmt::format("{} {}", key, g)));
      require(out[r].size() == out[0].size(), "{}: rank {} has {} groups, rank 0 has {}",
              folder_.string(), r, out[r].size(), out[0].size());
    }
    return out;
  }

  // Adam's `key` of every group; none where the optimizer keeps no such state, or not for all.
  std::optional<Groups> state_groups(const Groups& weights, const char* key) const {
    Groups out(zero_.size());
    for (size_t r = 0; r < zero_.size(); ++r) {
      const auto base =
          zero_[r].find(stage_ == 3 ? "optimizer_state_dict" : "base_optimizer_state");
      const auto states = base ? base->find("state") : std::nullopt;
      if (!states || !states->is_dict() || states->num_entries() != weights[r].size())
        return std::nullopt;
      for (size_t g = 0; g < weights[r].size(); ++g) {
        const PickleValue number = states->key(g);
        if (!number.is_int() || number.as_int() != static_cast<int64_t>(g)) return std::nullopt;
        const auto value = states->value(g).find(key);
        if (!value || !TorchArchive::is_tensor(*value)) return std::nullopt;
        TorchPiece piece = whole_piece(*optim_[r], *value, key);
        if (length(piece) < length(weights[r][g])) return std::nullopt;
        piece.end = piece.begin + length(weights[r][g]);  // without the padding
        out[r].push_back(std::move(piece));
      }
    }
    return out;
  }

  void add_partitions(LogicalModel& out) {
    const Groups weights =
        flat_groups(stage_ == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    const auto m = state_groups(weights, "exp_avg"), v = state_groups(weights, "exp_avg_sq");
    for (LogicalTensor& t : cut(weights, "")) add(out, std::move(t));
    if (!m || !v) {
      out.notes.push_back("weights only: the optimizer's states are not Adam's, one per group");
      return;
    }
    for (const auto& [groups, suffix] : {std::pair(&*m, "#m"), std::pair(&*v, "#v")}) {
      for (LogicalTensor& t : cut(*groups, suffix)) out.states.push_back(std::move(t));
    }
  }

  std::vector<LogicalTensor> cut(const Groups& groups, const std::string& suffix) const {
    return stage_ == 3 ? cut_by_tensor(groups, suffix) : cut_by_group(groups, suffix);
  }

  // The elements [begin, begin + count) of buffers that follow each other.
  static void take(const std::vector<TorchPiece>& buffers, int64_t begin, int64_t count,
                   std::vector<TorchPiece>& out) {
    for (const TorchPiece& b : buffers) {
      const int64_t from = std::max<int64_t>(begin, 0), to = std::min(begin + count, length(b));
      if (from < to) {
        out.push_back(b);
        out.back().begin = b.begin + from;
        out.back().end = b.begin + to;
      }
      begin -= length(b);
    }
  }

  int64_t elements(const Shape& shape, const std::string& name) const {
    require(checked_bytes(shape, Dtype::kF32).has_value(), "{}: \"{}\" has shape {}",
            folder_.string(), printable_line(name), to_string(shape));
    return num_elements(shape);
  }

  void require_used(int64_t used, int64_t held, int64_t padding) const {
    require(used <= held && held - used <= padding,
            "{}: the parameters take {} of {} elements of the partitions", folder_.string(), used,
            held);
  }

  std::vector<LogicalTensor> cut_by_group(const Groups& groups, const std::string& suffix) const {
    const PickleValue shapes = state().at("param_shapes");
    const auto paddings = zero_[0].find("param_alignment_paddings");
    require(shapes.size() == groups[0].size(), "{}: {} groups of shapes, {} of partitions",
            folder_.string(), shapes.size(), groups[0].size());
    std::vector<LogicalTensor> out;
    for (size_t g = 0; g < shapes.size(); ++g) {
      std::vector<TorchPiece> buffers;
      int64_t held = 0, at = 0;
      for (const auto& rank : groups) {
        buffers.push_back(rank[g]);
        held += length(rank[g]);
      }
      for (size_t i = 0; i < shapes[g].num_entries(); ++i) {
        const std::string name(shapes[g].key(i).as_string());
        const Shape shape = shape_of(shapes[g].value(i));
        const int64_t n = elements(shape, name);
        require(n <= held - at, "{}: the partitions end inside \"{}\"", folder_.string(),
                printable_line(name));
        std::vector<TorchPiece> pieces;
        take(buffers, at, n, pieces);
        out.push_back(join_pieces(name + suffix, shape, std::move(pieces)));
        at += n;
        if (paddings && paddings->is_list())
          at += std::clamp<int64_t>((*paddings)[g][i].as_int(), 0, held - at);
      }
      require_used(at, held, 2 * static_cast<int64_t>(groups.size()));
    }
    return out;
  }

  // ZeRO 3 pads every tensor, so that each rank holds as much of it as the others.
  static int64_t part_of(int64_t elements, int64_t ranks) {
    return elements / ranks + (elements % ranks != 0);
  }
  // The elements of every rank: a shorter one would shift what follows it.
  int64_t held_by_each(const Groups& groups) const {
    std::vector<int64_t> held;
    for (const auto& rank : groups) {
      held.push_back(0);
      for (const TorchPiece& b : rank) held.back() += length(b);
      require(held.back() == held[0], "{}: rank {} holds {} elements, rank 0 holds {}",
              folder_.string(), held.size() - 1, held.back(), held[0]);
    }
    return held[0];
  }

  std::vector<LogicalTensor> cut_by_tensor(const Groups& groups, const std::string& suffix) const {
    const PickleValue shapes = state().at("param_shapes");
    const auto ranks = static_cast<int64_t>(groups.size());
    const int64_t held = held_by_each(groups);
    int64_t at = 0;
    std::vector<LogicalTensor> out;
    for (size_t g = 0; g < shapes.size(); ++g) {
      for (size_t i = 0; i < shapes[g].num_entries(); ++i) {
        const std::string name(shapes[g].key(i).as_string());
        const Shape shape = shape_of(shapes[g].value(i));
        const int64_t part = part_of(elements(shape, name), ranks);
        require(part <= held - at, "{}: the partitions end inside \"{}\"", folder_.string(),
                printable_line(name));
        std::vector<TorchPiece> pieces;
        for (const auto& rank : groups) take(rank, at, part, pieces);
        out.push_back(join_pieces(name + suffix, shape, std::move(pieces)));
        at += part;
      }
    }
    require_used(at, held, 0);
    return out;
  }

  // Whole under ZeRO 2; under ZeRO 3 every rank has its part.
  void add_frozen(LogicalModel& out) {
    const auto shapes = dict_of(model_[0], "frozen_param_shapes");
    for (size_t i = 0; shapes && i < shapes->num_entries(); ++i) {
      const std::string name(shapes->key(i).as_string());
      const Shape shape = shape_of(shapes->value(i));
      const auto ranks = static_cast<int64_t>(stage_ == 3 ? model_.size() : 1);
      const int64_t part = part_of(elements(shape, name), ranks);
      std::vector<TorchPiece> pieces;
      for (const Archive& file : model_) {
        const auto parts = dict_of(file, "frozen_param_fragments");
        require(parts.has_value(), "{} has no part of \"{}\"", folder_.string(),
                printable_line(name));
        pieces.push_back(whole_piece(*file, parts->at(name), name));
        require(length(pieces.back()) == part,
                "{}: rank {} holds {} elements of the frozen \"{}\", wanted {}", folder_.string(),
                pieces.size() - 1, length(pieces.back()), printable_line(name), part);
        if (stage_ != 3) break;
      }
      add(out, join_pieces(name, shape, std::move(pieces)));
    }
  }

  // What the model holds and no partition has: all of it without ZeRO.
  void add_held(LogicalModel& out) {
    const PickleValue module = state().at("module");
    const auto shared = dict_of(model_[0], "shared_params");
    for (size_t i = 0; i < module.num_entries(); ++i) {
      if (!module.key(i).is_string() || !TorchArchive::is_tensor(module.value(i))) continue;
      const std::string name(module.key(i).as_string());
      if (names_.contains(name) || (shared && shared->find(name))) continue;
      const TorchPiece piece = whole_piece(*model_[0], module.value(i), name);
      add(out, join_pieces(name, piece.tensor.shape, {piece}));
    }
  }

  void add_shared(LogicalModel& out) {
    const auto shared = dict_of(model_[0], "shared_params");
    for (size_t i = 0; shared && i < shared->num_entries(); ++i) {
      const std::string name(shared->key(i).as_string());
      const std::string_view holder = shared->value(i).as_string();
      const auto found = std::find_if(out.weights.begin(), out.weights.end(),
                                      [&](const LogicalTensor& t) { return t.name == holder; });
      if (found == out.weights.end()) continue;
      LogicalTensor copy = *found;
      copy.name = name;
      add(out, std::move(copy));
    }
  }

  fs::path folder_;
  std::vector<Archive> model_, optim_;
  std::vector<PickleValue> zero_;  // of each rank: its optimizer's part
  int stage_ = 0;
  std::set<std::string> names_;
};

}  // namespace

LogicalModel open_deepspeed(const fs::path& folder) {
  const fs::path step = deepspeed_step_folder(folder);
  LogicalModel model;
  model.kind = LogicalModel::Kind::kForeign;
  model.path = step;
  if (is_universal(step)) {
    read_universal(step, model);
  } else {
    ZeroReader(step).read(model);
  }
  find_config(model, config_folders(folder));
  finish_foreign(model);
  return model;
}

}  // namespace weft
