// checkpoint/export_torch.h: logical models as checkpoints of torch's training programs, which go
// on from there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/export.h"
#include "checkpoint/logical.h"

namespace weft {

// What a state of the optimizer needs besides its tensors. The names are torch.optim's.
struct TorchOptimizer {
  std::string name;  // train.optimizer; torch_groups.cpp knows torch's counterpart
  int64_t step = 0;  // updates made
  double lr = 0, initial_lr = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool decay_all = true;  // false: a second group, of tensors with one dim, does not decay
};

// A folder of torch.distributed.checkpoint: {"model": model.state_dict(), "optim":
// get_optimizer_state_dict(model, optimizer), "step"}, with config.json and the tokenizer next to
// it. Tied weights appear under each of their names, stored once. Files have at most
// max_shard_bytes, tensors are cut along their first dim where they are large.
void export_dcp(const LogicalModel& model, const std::optional<TorchOptimizer>& optimizer,
                const std::filesystem::path& out, const ExportOptions& options);

// A universal checkpoint of DeepSpeed: out/latest_universal names out/global_stepN, which has one
// folder per parameter below zero/. Everything is in fp32, whatever options.dtype says.
void export_deepspeed(const LogicalModel& model, const std::optional<TorchOptimizer>& optimizer,
                      const std::filesystem::path& out, const ExportOptions& options);

// What the two may replace.
bool is_dcp_export(const std::filesystem::path& folder);
bool is_deepspeed_export(const std::filesystem::path& folder);

}  // namespace weft
