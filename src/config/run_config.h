// config/run_config.h: the run file: every room's configuration gathered, bound to one option
// table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/config.h"
#include "optim/optimizer_config.h"
#include "optim/schedule.h"
#include "tensor/dtype.h"

namespace weft {

struct ModelConfig {
  std::string path;
  std::string init = "pretrained";
  std::optional<int64_t> num_layers;
  std::optional<double> dropout;
  std::vector<std::string> freeze;
};

struct ParallelConfig {
  int64_t dp = 1, tp = 1;
  std::string shard = "none";
  std::string mode = "fast";
  int64_t exact_tp = 0, exact_dp = 0, exact_rows = 1;
};

struct TrainConfig {
  std::string precision = "fp32";  // auto only until it is chosen (planning/precision.h)
  bool tf32 = false;
  bool master_weights = true;
  double loss_scale = 65536;
  int64_t epochs = 1;
  std::optional<int64_t> steps;
  int64_t global_batch = 8, micro_batch = 2, grad_accum = 0;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  double clip_norm = 1.0;
  std::string recompute = "none", offload = "none", offload_to = "cpu";
  int64_t log_every = 1, eval_every = 0, early_stop = 0;
};

struct EvalConfig {
  int64_t generate = 0;
  std::string match = "exact";
  int64_t max_new_tokens = 128;
};

struct CheckpointConfig {
  int64_t every = 0, keep = 2;
  std::string best = "eval_loss", fallback;
  bool async = true;
};

struct LaunchConfig {
  int64_t nodes = 1, ranks_per_node = 0, threads = 0;
  std::string device = "auto", interface = "lo";
  int64_t port = 0, join_timeout_s = 300;
  bool elastic = false;
  int64_t min_nodes = 0;
  int64_t max_restarts = 2;
  int64_t restart_reset_steps = 100;
  std::string snapshot_every = "auto";
  int64_t snapshot_steps() const;  // 0: auto; -1: none are taken
  int64_t hang_timeout_s = 0;
  std::map<std::string, std::string> env, slurm;
};

struct TrackConfig {
  bool tensorboard = false;
  std::string mlflow, wandb;
};

struct RunConfig {
  std::string name;
  std::string storage = "runs";
  int64_t seed = 42;
  ModelConfig model;
  DataConfig data;
  ParallelConfig parallel;
  TrainConfig train;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  LaunchConfig launch;
  TrackConfig track;

  Dtype compute_dtype() const;
  bool has_masters() const { return train.precision != "fp32" && train.master_weights; }
  bool scales_loss() const { return train.precision == "fp16"; }
  bool asks_tf32() const { return train.tf32 && train.precision == "fp32"; }
  int64_t loss_divisor() const;  // P of fp16: a power of two, at least a batch's positions
  int64_t micro_batch() const;   // lowered where the global batch is smaller
  int64_t num_passes() const;    // of one optimizer step
  int64_t ranks_per_node() const { return parallel.dp * parallel.tp / launch.nodes; }
  bool has_eval() const { return !data.eval.empty() || data.eval_fraction > 0; }
};

// A run file read, checked and resolved. All complaints are collected in one UserError.
class RunFile {
 public:
  // kLook: keys that this build cannot train with are accepted and listed, not rejected. kEval:
  // those that only training reads are not checked.
  enum class Use { kTrain, kLook, kEval };
  RunFile(const std::filesystem::path& path, const std::vector<std::string>& sets,
          Use use = Use::kTrain);
  const RunConfig& config() const { return config_; }
  // YAML, defaults marked.
  std::string resolved() const { return asked_.empty() ? table_->resolved() : asked_; }
  // Replaces `train.precision: auto`, which the resolved file then shows as chosen. All complaints
  // about the value are collected as those about a given one.
  void choose_precision(const std::string& value);
  // Replaces the default of checkpoint.async; the resolved file shows why.
  void save_synchronously(const std::string& why);
  void take_no_snapshots(const std::string& why);
  // The layout of an elastic run that has other nodes than launch.nodes; the resolved file shows
  // what was asked for. Call it last.
  void use_nodes(int64_t nodes);
  bool was_given(std::string_view key) const { return table_->was_given(key); }
  const std::vector<std::string>& not_built() const { return table_->not_built(); }
  // One line for each key of the file that --set replaced by an alternative.
  void log_replaced() const;

 private:
  void check(std::vector<std::string> complaints) const;  // and of all keys together

  RunConfig config_;
  Use use_;
  std::unique_ptr<OptionTable> table_;
  std::string asked_;  // the resolved file before use_nodes; "": it was not called
};

void bind_options(OptionTable* table, RunConfig* config);
void add_key_synonyms(OptionTable* table);  // other programs' names for them
// A hint for a launch.device of another program ("gpu", "cuda:1"); or empty.
std::string other_device_words(std::string_view value);
// The same for train.precision ("bfloat16", "tf32").
std::string other_precision_words(std::string_view value);
// Checks that global_batch, micro_batch and grad_accum divide.
void check_batch(const RunConfig& config, std::vector<std::string>* complaints);
// Contradictions among the keys of evaluation: of an evaluation alone, and of those in training,
// which read eval.generate, checkpoint.best and train.early_stop too.
void check_evaluation(const RunConfig& config, std::vector<std::string>* complaints);
void check_training_evaluation(const RunConfig& config, std::vector<std::string>* complaints);
void check_config(const OptionTable& table, const RunConfig& config,
                  std::vector<std::string>* complaints);

// "1, 2, 4, 8", for messages; only the first ones of a long list.
std::string list_divisors(int64_t n);

}  // namespace weft
