// train/tensor_hashes.cpp: hashes slices in chunks on all threads, then sums over ranks.
#include "train/tensor_hashes.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "graph/portion.h"
#include "model/stored.h"
#include "optim/optimizer.h"
#include "track/run_files.h"
#include "train/host_slices.h"

namespace weft {
namespace {

constexpr int64_t kHashTaskElements = 1 << 16;  // elements per task
constexpr double kNever = 1e12;                 // more slices than there can be

template <typename Bits>
uint64_t hash_run(const std::byte* data, int64_t index, int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    sum += element_hash(bits, index + i);
  }
  return sum;
}

uint64_t hash_stretch(const Slice& slice, const Portion& stretch) {
  const int64_t size = dtype_bytes(slice.dtype);
  ensure(size == 2 || size == 4, "a tensor of the model has elements of 2 or 4 bytes");
  const std::byte* data =
      static_cast<const std::byte*>(slice.data) + (stretch.begin - slice.flat_begin) * size;
  uint64_t sum = 0;
  for_each_run(stretch, [&](int64_t logical, int64_t count, int64_t local) {
    sum += size == 4 ? hash_run<uint32_t>(data + local * size, logical, count)
                     : hash_run<uint16_t>(data + local * size, logical, count);
  });
  return sum;
}

// What is hashed for states of that block: stored tensors; the parameters where a unit of state is
// shared by several elements, and has no place in a stored tensor.
std::vector<FileTensor> hashed_tensors(const std::vector<ParameterSpec>& parameters,
                                       int64_t block) {
  if (block == 1) return file_tensors(parameters);
  std::vector<FileTensor> own;
  for (const ParameterSpec& p : parameters) own.push_back({p.name, p.shape, {&p}});
  return own;
}

// A gradient of a parameter as one of the stored tensor.
Slice stored_slice(const std::vector<ParameterSpec>& parameters, const Slice& s) {
  for (const ParameterSpec& p : parameters) {
    if (s.name.substr(0, s.name.rfind('#')) != p.name) continue;
    const Portion t = to_stored(p, {s.name, s.shape, s.offset, s.extent, s.flat_begin, s.flat_end});
    return {t.name, t.shape, s.dtype, t.offset, t.extent, t.begin, t.end, s.data};
  }
  throw BugError(s.name + " is not a gradient of the model");
}

}  // namespace

// The finalizer of MurmurHash3: every input bit affects every output bit.
uint64_t element_hash(uint64_t bits, int64_t index) {
  uint64_t h = bits + (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15ull;
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return h ^ (h >> 33);
}

std::unique_ptr<TensorHashes> TensorHashes::from_environment(Engine& engine, const Model& model,
                                                             Ranks& ranks,
                                                             const OptimizerConfig& optimizer,
                                                             const std::filesystem::path& dir,
                                                             int64_t step, int64_t keep_bytes) {
  const std::string word = hashes_word();
  if (word.empty() || word == "0") return nullptr;
  std::unique_ptr<TensorHashes> made(new TensorHashes(engine, model, ranks, optimizer, word));
  made->path_ = dir / kHashesFile;
  const bool is_new = step == 0 && keep_bytes < 0;
  if (ranks.rank() == 0) {
    if (keep_bytes >= 0) cut_to_bytes(made->path_, keep_bytes);
    made->file_.emplace(made->path_,
                        is_new ? FileWriter::Mode::kTruncate : FileWriter::Mode::kAppend);
  }
  if (is_new) made->write(0);
  return made;
}

int64_t TensorHashes::bytes() const {
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(path_, unknown);
  return !file_ || unknown ? -1 : static_cast<int64_t>(bytes);
}

TensorHashes::TensorHashes(Engine& engine, const Model& model, Ranks& ranks,
                           const OptimizerConfig& optimizer, const std::string& what)
    : ranks_(ranks),
      pool_(engine.pool()),
      device_(engine.executor().device()),
      every_step_(what != "start"),
      has_norms_(what != "1") {
  std::vector<StateSpec> kinds = {{"#grad"}, {""}};
  for (const StateSpec& state : find_optimizer(optimizer.name).states(optimizer))
    kinds.push_back(state);
  const std::vector<ParameterSpec> parameters = model.parameters();
  for (const StateSpec& kind : kinds) {
    for (const FileTensor& tensor : hashed_tensors(parameters, kind.block)) {
      names_.push_back(tensor.name + kind.suffix);
      sizes_.push_back(num_elements(state_shape(tensor.shape, kind.block)));
    }
  }
  sums_.assign(2 * names_.size(), 0);
  weights_ = engine.weights().checkpoint_slices();
  for (Slice& slice : weights_) {
    if (slice.name.ends_with(kMaster)) slice.name.resize(slice.name.size() - kMaster.size());
    if (slice.flat_end < 0) slice.flat_end = num_elements(slice.extent);
  }
  for (const HeldGradient& g : held_gradients(engine.executor(), ranks.layout())) {
    if (!g.is_owned) continue;
    gradients_.push_back(stored_slice(parameters, g.slice));
    is_whole_.push_back(g.is_whole);
  }
  weight_indices_ = find_indices(weights_);
  gradient_indices_ = find_indices(gradients_);
}

std::vector<size_t> TensorHashes::find_indices(const std::vector<Slice>& slices) const {
  std::vector<size_t> indices;
  for (const Slice& slice : slices) {
    const auto found = std::find(names_.begin(), names_.end(), slice.name);
    ensure(found != names_.end(), slice.name + " is not a tensor of the model");
    indices.push_back(static_cast<size_t>(found - names_.begin()));
  }
  return indices;
}

void TensorHashes::add(const std::vector<Slice>& held, const std::vector<size_t>& indices) {
  const HostSlices on_host(held, device_);
  const std::vector<Slice>& slices = on_host.slices();
  struct Task {
    size_t slice;
    int64_t begin;
  };
  std::vector<Task> tasks;
  for (size_t i = 0; i < slices.size(); ++i) {
    for (int64_t at = slices[i].flat_begin; at < slices[i].flat_end; at += kHashTaskElements) {
      tasks.push_back({i, at});
    }
    sums_[names_.size() + indices[i]] +=
        static_cast<uint64_t>(slices[i].flat_end - slices[i].flat_begin);
  }
  pool_->run(static_cast<int64_t>(tasks.size()), [&](int64_t t, int) {
    const Task& task = tasks[static_cast<size_t>(t)];
    const Slice& s = slices[task.slice];
    const Portion stretch{s.name,     s.shape,
                          s.offset,   s.extent,
                          task.begin, std::min(s.flat_end, task.begin + kHashTaskElements)};
    std::atomic_ref(sums_[indices[task.slice]]).fetch_add(hash_stretch(s, stretch));
  });
}

void TensorHashes::take_gradients() {
  if (every_step_) add(gradients_, gradient_indices_);
  if (has_norms_) add_squares();
}

void TensorHashes::add_squares() {
  const HostSlices on_host(gradients_, device_);
  const std::vector<Slice>& slices = on_host.slices();
  // One slice, one thread and one order: the sums of a run are the same every time.
  std::vector<double> sums(slices.size());
  pool_->run(static_cast<int64_t>(slices.size()), [&](int64_t i, int) {
    const Slice& s = slices[static_cast<size_t>(i)];
    double sum = 0;
    for (int64_t k = 0; k < s.flat_end - s.flat_begin; ++k) {
      const double v = load_element(s.data, s.dtype, k);
      sum += v * v;
    }
    sums[static_cast<size_t>(i)] = sum;
  });
  squares_.assign(2 * names_.size(), 0);
  for (size_t i = 0; i < slices.size(); ++i) {
    const bool is_whole = is_whole_[i] != 0;
    squares_[gradient_indices_[i]] += sums[i];
    // If any slice on any rank is incomplete, the tensor has no norm.
    squares_[names_.size() + gradient_indices_[i]] += is_whole ? 1 : -kNever;
  }
}

Json::Object TensorHashes::norms_of_step(double factor) {
  const size_t n = squares_.size();
  std::vector<double> all = squares_;
  if (ranks_.size() > 1) {
    all.resize(n * static_cast<size_t>(ranks_.size()));
    ranks_.world().all_gather(squares_.data(), all.data(),
                              static_cast<int64_t>(n * sizeof(double)));
  }
  std::fill(squares_.begin(), squares_.end(), 0);
  for (size_t i = 0; i < all.size(); ++i) squares_[i % n] += all[i];
  Json::Object norms;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (squares_[names_.size() + i] > 0)
      norms.emplace_back(names_[i], std::sqrt(squares_[i]) / factor);
  }
  return norms;
}

Json::Object TensorHashes::tensors_of_step() {
  add(weights_, weight_indices_);
  sum_over_ranks();
  Json::Object tensors;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto added = static_cast<int64_t>(sums_[names_.size() + i]);
    if (added == 0) continue;  // frozen, or nothing was updated
    ensure(added == sizes_[i], fmt::format("{}: the ranks hold {} elements of {}, each once",
                                           names_[i], added, sizes_[i]));
    tensors.emplace_back(names_[i], hash_hex(sums_[i]));
  }
  std::fill(sums_.begin(), sums_.end(), 0);
  return tensors;
}

void TensorHashes::write(int64_t step, std::optional<double> factor) {
  Json line;
  line.set("step", Json(step));
  if (step == 0 || every_step_) line.set("tensors", Json(tensors_of_step()));
  // None are computed in a step without a target.
  if (!squares_.empty() && factor) line.set("norms", Json(norms_of_step(*factor)));
  squares_.clear();
  if (file_ && (line.find("tensors") || line.find("norms"))) file_->write(line.dump() + "\n");
}

void TensorHashes::sum_over_ranks() {
  if (ranks_.size() == 1) return;
  const size_t n = sums_.size();
  std::vector<uint64_t> all(n * static_cast<size_t>(ranks_.size()));
  ranks_.world().all_gather(sums_.data(), all.data(), static_cast<int64_t>(n * sizeof(uint64_t)));
  std::fill(sums_.begin(), sums_.end(), 0);
  for (size_t i = 0; i < all.size(); ++i) sums_[i % n] += all[i];
}

}  // namespace weft
