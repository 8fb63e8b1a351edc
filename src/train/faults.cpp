// train/faults.cpp: what each fault does, and where it would do nothing.
#include "train/faults.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/suggest.h"
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

void Fault::check(const RunConfig& config, const Layout& layout) const {
  require(rank_ < layout.num_ranks(), "{}={}: there is no rank {} of {}", kFaultVariable, words_,
          rank_, layout.num_ranks());
  const bool is_zero3 = layout.dp > 1 && layout.shard == Shard::kZero3;
  require(kind_ != Kind::kCopy || (layout.dp > 1 && !is_zero3) || layout.tp > 1,
          "{}={}: no rank of {} holds copies", kFaultVariable, words_, describe(layout));
  require(kind_ != Kind::kSwap || (layout.is_exact && config.num_passes() >= 3),
          "{}={}: wants exact mode and three passes on a rank", kFaultVariable, words_);
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
  ensure(kind_ == Kind::kDouble, fmt::format("rank {} has no gradient for the fault", rank_));
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
  ensure(false, fmt::format("rank {} has no parameter for the fault", rank_));
}

void Fault::change(Graph* graph, int rank) const {
  if (kind_ != Kind::kNorm || rank != rank_) return;
  for (Node& node : graph->finish) {
    if (node.op != Op::kNorm) continue;
    ensure(!node.inputs.empty(), "a norm of nothing");
    node.inputs.push_back(node.inputs[0]);
  }
}

}  // namespace weft
