// train/weights.h: what a rank holds of the model, filled from a folder, a seed or a checkpoint.
#pragma once

#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/logical.h"
#include "exec/executor.h"
#include "io/hf_folder.h"
#include "model/model.h"

namespace weft {

// The parameters and states of an executor's graph, with their memory.
class Weights {
 public:
  // has_masters: parameters that are trained have fp32 masters, on this rank or another.
  Weights(const Executor& executor, const Model& model, bool has_masters, ThreadPool* pool);

  void load(const HfFolder& folder);
  void init(uint64_t seed);
  // On every rank its own part. UserError where a tensor is missing or, unless `converts`, has
  // another type; DamagedCheckpoint, RunError as CheckpointReader::read.
  void load(const CheckpointReader& reader, bool converts);
  void load(const LogicalModel& source);  // parameters only
  // What load() reads of a checkpoint, unless it converts; without memory.
  std::vector<Slice> needed_slices() const;

  // Both are in device memory (train/host_slices.h copies them to the host). What this rank writes
  // into a checkpoint: parameters or masters, states (docs/contract.md, Checkpoints).
  std::vector<Slice> checkpoint_slices() const;
  // The parameters in their highest precision (masters where they exist), by stored name. All of
  // every tensor only with one rank.
  std::vector<Slice> weight_slices() const;

  // All that this rank holds, as hashes: ranks that hold the same portion of a tensor must have the
  // same bytes of it.
  struct Copy {
    std::string name;  // of the tensor; states have their suffix
    uint64_t portion;  // of name, box and range
    uint64_t bytes;
  };
  std::vector<Copy> copies() const;

 private:
  struct Held {
    Portion portion;
    Portion stored;  // the same elements in the tensor of the model's files
    Dtype dtype;
    std::byte* data;
    const ParameterSpec* spec;
    bool is_saved;
    bool has_master;
  };
  Held hold(const Executor& executor, Ref r, const std::string& suffix) const;
  // Where the checkpoint has the values of a Held: under which name, in which type.
  struct Source {
    const Held* held;
    std::string name;
    Dtype dtype;
  };
  Source source_of(const Held& held) const;
  bool is_loaded(const Held& held) const;  // else empty, or rounded from a master
  // The same with converted types, and weights where the checkpoint has no masters or only those.
  Source convertible_source(const CheckpointReader& reader, const Held& held) const;
  void read_in_place(const CheckpointReader& reader, const std::vector<Source>& sources) const;
  void read_staged(const CheckpointReader& reader, const std::vector<Source>& sources) const;
  const Held* own_master(const Held& parameter) const;
  void round_master(const Held& master, const Held& parameter) const;
  template <typename Fn>
  void run_reads(size_t num_tasks, const Fn& fn) const;
  // fn(held, stretch, host memory to fill) over stretches of the whole list, on all threads; a
  // stretch is elements of the parameter, or where `stored`, of the stored tensor.
  template <typename Fn>
  void each_stretch(const std::vector<Held>& list, bool stored, const Fn& fn) const;

  ThreadPool* pool_;
  Device* device_;
  std::vector<ParameterSpec> specs_;
  std::vector<Held> parameters_, masters_, states_;
};

}  // namespace weft
