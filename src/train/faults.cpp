// train/faults.cpp: what each fault does, and where it would do nothing.
#include "train/faults.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/suggest.h"
#include "graph/ops/grad_norm.h"
#include "graph/portion.h"
#include "train/gradients.h"
#include "train/host_slices.h"

namespace weft {
namespace {

const std::vector<std::string> kKinds = {"flip", "swap", "double", "norm", "copy"};

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

int64_t number_of(const std::string& word, const std::string& value) {
  require(!value.empty() && value.size() < 10 &&
              value.find_first_not_of("0123456789") == std::string::npos,
          "{}: \"{}\" wants a number", kFaultVariable, word);
  return std::stoll(value);
}

// The lowest bit of the mantissa of the first element.
void flip_bit(Device* device, void* data, Dtype dtype) {
  ensure(dtype == Dtype::kF32 || dtype_bytes(dtype) == 2, "a fault in a tensor of another type");
  unsigned char first = 0;  // little endian on all machines that we build for
  device->read(&first, data, 1);
  first ^= 1;
  device->write(data, &first, 1);
}

void swap_rows(Batch* batch, int64_t a, int64_t b) {
  const int64_t T = batch->seq_length;
  for (std::vector<int32_t>* of : {&batch->ids, &batch->targets, &batch->position_ids}) {
    if (of->empty()) continue;  // positions of rows that are not packed
    std::swap_ranges(of->begin() + a * T, of->begin() + (a + 1) * T, of->begin() + b * T);
  }
  std::swap(batch->lengths[static_cast<size_t>(a)], batch->lengths[static_cast<size_t>(b)]);
  std::swap(batch->row_numbers[static_cast<size_t>(a)], batch->row_numbers[static_cast<size_t>(b)]);
}

bool is_frozen(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;  // as freeze_parameters
  });
}

// Of vectors: why `double` would leave this one as it is.
std::string why_not_doubled(const ParameterSpec& p, const std::vector<std::string>& freeze) {
  if (p.shape.size() != 1) return "";
  if (p.cut.dim >= 0) return p.name + " is cut over tensor-parallel ranks";
  return is_frozen(p.name, freeze) ? p.name + " is frozen" : "";
}

}  // namespace

std::optional<Fault> Fault::from_environment() {
  const char* given = std::getenv(kFaultVariable);
  if (!given || !*given) return std::nullopt;
  Fault fault;
  fault.words_ = given;
  const std::vector<std::string> words = split_words(given);
  const auto kind = std::find(kKinds.begin(), kKinds.end(), words[0]);
  require(kind != kKinds.end(), "{}: no fault \"{}\"{}", kFaultVariable, words[0],
          did_you_mean(words[0], kKinds));
  fault.kind_ = static_cast<Kind>(kind - kKinds.begin());
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string key = words[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
    if (key == "tensor") {
      fault.tensor_ = value;
    } else if (key == "rank") {
      fault.rank_ = static_cast<int>(number_of(words[i], value));
    } else {
      require(key == "step", "{}: \"{}\"; wanted: step, rank or tensor", kFaultVariable, words[i]);
      fault.step_ = number_of(words[i], value);
    }
  }
  return fault;
}

void Fault::check(const RunConfig& config, const Layout& layout, const Model* model) const {
  require(rank_ < layout.num_ranks(), "{}={}: there is no rank {} of {}", kFaultVariable, words_,
          rank_, layout.num_ranks());
  const bool is_zero3 = layout.dp > 1 && layout.shard == Shard::kZero3;
  require(kind_ != Kind::kCopy || (layout.dp > 1 && !is_zero3) || layout.tp > 1,
          "{}={}: no rank of {} holds copies", kFaultVariable, words_, describe(layout));
  require(kind_ != Kind::kSwap || (layout.is_exact && config.num_passes() >= 3),
          "{}={}: wants exact mode and three passes on a rank", kFaultVariable, words_);
  require(kind_ != Kind::kFlip || layout.is_exact,
          "{}={}: one bit is less than layouts of fast mode differ by: set parallel.mode to exact",
          kFaultVariable, words_);
  require(kind_ != Kind::kNorm || tensor_.empty(), "{}={}: takes no tensor", kFaultVariable,
          words_);
  require(acts_at_once() || !config.train.steps || step_ <= *config.train.steps,
          "{}={}: the run has {} steps, so that nothing would be wrong", kFaultVariable, words_,
          config.train.steps.value_or(0));
  require(step_ > 0, "{}={}: steps count from 1", kFaultVariable, words_);
  if (model && (!tensor_.empty() || kind_ == Kind::kDouble)) check_tensor(*model, config);
}

void Fault::check_tensor(const Model& model, const RunConfig& config) const {
  std::vector<std::string> names;
  for (const ParameterSpec& p : model.parameters()) {
    if (kind_ == Kind::kDouble) {
      const std::string why = why_not_doubled(p, config.model.freeze);
      require(why.empty() || p.name != tensor_, "{}={}: {}, so that nothing would be wrong",
              kFaultVariable, words_, why);
      if (!why.empty() || p.shape.size() != 1) continue;
      if (tensor_.empty()) return;  // the first of them
    }
    if (p.name == tensor_) return;
    names.push_back(p.name);
  }
  require(!tensor_.empty(), "{}={}: the model has no vector that is trained and on all ranks",
          kFaultVariable, words_);
  const std::string near = did_you_mean(tensor_, names);
  throw UserError(fmt::format("{}={}: the model has no {} \"{}\"{}", kFaultVariable, words_,
                              kind_ == Kind::kDouble ? "vector" : "parameter", tensor_, near),
                  near.empty() ? "`weft inspect` on the model's folder lists the names" : "");
}

void Fault::check_fired(int64_t first, int64_t last) const {
  if (acts_at_once() || (step_ >= first && step_ <= last)) return;
  throw RunError(fmt::format("{}={}: this start made the steps {} to {}, so that nothing was wrong",
                             kFaultVariable, words_, first, last),
                 "name a step that is made");
}

void Fault::warn() const {
  log_warning("{}={}: this run is made wrong on purpose", kFaultVariable, words_);
}

void Fault::before_passes(int64_t step, const RunConfig& config, const Ranks& ranks,
                          Batch* batch) const {
  const Layout& layout = ranks.layout();
  if (kind_ != Kind::kSwap || step != step_) return;
  if (layout.dp_rank(ranks.rank()) != layout.dp_rank(rank_)) return;
  const int64_t rows = config.micro_batch();
  for (int64_t row = 0; row < rows; ++row) swap_rows(batch, rows + row, 2 * rows + row);
}

void Fault::before_update(int64_t step, const Engine& engine, const Ranks& ranks) const {
  if (step != step_ || (kind_ != Kind::kFlip && kind_ != Kind::kDouble)) return;
  if (kind_ == Kind::kFlip && ranks.rank() != rank_) return;
  Device* device = engine.executor().device();
  std::string doubled;
  for (const HeldGradient& g : held_gradients(engine.executor(), ranks.layout())) {
    const std::string name = g.slice.name.substr(0, g.slice.name.size() - 5);  // without #grad
    if (!is_wanted(name)) continue;
    if (kind_ == Kind::kFlip) {
      if (tensor_.empty() && !g.is_owned) continue;
      return flip_bit(device, g.slice.data, g.slice.dtype);
    }
    if (!is_replicated_vector(g.slice) || !(doubled.empty() || doubled == name)) continue;
    doubled = name;
    const HostSlices held({g.slice}, device);
    const Slice& s = held.slices()[0];
    const int64_t n = s.flat_end - s.flat_begin;
    for (int64_t i = 0; i < n; ++i) {
      store_element(s.data, s.dtype, i, 2 * load_element(s.data, s.dtype, i));
    }
    device->write(g.slice.data, s.data, n * dtype_bytes(s.dtype));
  }
  require(kind_ == Kind::kDouble, "{}={}: rank {} holds no gradient of it", kFaultVariable, words_,
          rank_);
}

void Fault::after_update(int64_t step, const Engine& engine, const Ranks& ranks) const {
  if (kind_ != Kind::kCopy || step != step_ || ranks.rank() != rank_) return;
  const bool is_on_data_axis = ranks.layout().dp > 1 && ranks.layout().shard != Shard::kZero3;
  const Graph& graph = engine.executor().plan().graph;
  for (Ref r : graph.of_kind(ValueKind::kParameter)) {
    const Value& v = graph[r];
    if (v.is_bucket) continue;
    const Portion p = portion_of(v);
    const bool has_copies = is_on_data_axis || p.extent == p.shape || v.copies > 1;
    if (!has_copies || portion_elements(p) == 0 || !is_wanted(p.name)) continue;
    return flip_bit(engine.executor().device(), engine.executor().data(r), v.dtype);
  }
  require(false, "{}={}: rank {} holds nothing of it that others have too", kFaultVariable, words_,
          rank_);
}

void Fault::change(Graph* graph, int rank) const {
  if (kind_ != Kind::kNorm || rank != rank_) return;
  for (Node& node : graph->finish) {
    if (node.op != &kNormOp) continue;
    ensure(!node.inputs.empty(), "a norm of nothing");
    node.inputs.push_back(node.inputs[0]);
  }
}

}  // namespace weft
