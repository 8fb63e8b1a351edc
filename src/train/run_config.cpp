// train/run_config.cpp: the one table of keys; help, defaults and validation come from it.
#include "train/run_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace weft {
namespace {

constexpr const char* kMesh = "more than one node";

void bind_model(OptionTable& t, ModelConfig& c) {
  t.add("model.path", &c.path, "Hugging Face folder, or a hub name in the Hugging Face cache")
      .required();
  t.add("model.init", &c.init, "where the weights come from").one_of({"pretrained", "random"});
  t.add("model.num_layers", &c.num_layers, "keep only the first layers").at_least(1);
  t.add("model.dropout", &c.dropout, "overrides the configuration's own rates; only 0 is built")
      .between(0, 0);
  t.add("model.freeze", &c.freeze, "globs of parameters without gradient and state");
}

void bind_data(OptionTable& t, DataConfig& c) {
  t.add("data.train", &c.train, "files, globs, folders, s3://, hf://datasets/NAME/FILE").required();
  t.add("data.eval", &c.eval, "files for evaluation");
  t.add("data.eval_fraction", &c.eval_fraction, "or this part of the rows, chosen by seed")
      .at_least(0)
      .below(1);
  t.add("data.format", &c.format, "auto goes by extension")
      .one_of({"auto", "text", "jsonl", "csv", "parquet", "arrow", "idx"})
      .not_built_values({"idx"});
  t.add("data.text", &c.text, "template over the columns");
  t.add("data.source", &c.source, "prompt, masked in the loss");
  t.add("data.target", &c.target, "answer");
  t.add("data.messages", &c.messages, "chat rows: column of {role, content}");
  t.add("data.tokenizer", &c.tokenizer, "auto (model.path) | bytes | PATH");
  t.add("data.seq_length", &c.seq_length, "positions fed").at_least(2).at_most(1 << 20);
  t.add("data.target_length", &c.target_length, "encoder-decoder only").at_least(1);
  t.add("data.layout", &c.layout, "how rows fill a batch")
      .one_of({"pad", "dynamic", "pack"})
      .not_built_values({"dynamic", "pack"});
  t.add("data.mask_padding", &c.mask_padding, "padding is never a label")
      .not_built("labels on padding");
  t.add("data.drop_empty", &c.drop_empty, "rows of one token or less are dropped");
  t.add("data.append_eos", &c.append_eos, "auto: after a target, not after plain text")
      .one_of({"auto", "true", "false"});
  t.add("data.fraction", &c.fraction, "of the rows, the first ones").above(0).at_most(1);
  t.add("data.limit", &c.limit, "rows; 0 = all").at_least(0);
  t.add("data.shuffle", &c.shuffle, "keyed by seed and epoch");
}

void bind_parallel(OptionTable& t, ParallelConfig& c) {
  t.add("parallel.dp", &c.dp, "data-parallel ranks").at_least(1).at_most(1 << 20);
  t.add("parallel.tp", &c.tp, "tensor-parallel ranks").at_least(1).at_most(64);
  t.add("parallel.shard", &c.shard, "over dp: none, zero1 (states), zero2 (+ gradients), zero3")
      .one_of({"none", "zero1", "zero2", "zero3", "fsdp"});
  t.add("parallel.mode", &c.mode, "exact: the same bits in every layout").one_of({"fast", "exact"});
  t.add("parallel.exact_tp", &c.exact_tp, "exact: leaves of a cut contraction; 0 = chosen")
      .at_least(0);
  t.add("parallel.exact_dp", &c.exact_dp, "exact: groups of leaves; 0 = chosen").at_least(0);
  t.add("parallel.exact_rows", &c.exact_rows, "exact: rows of a leaf").at_least(1);
}

void bind_train(OptionTable& t, TrainConfig& c) {
  t.add("train.precision", &c.precision, "compute type")
      .one_of({"fp32", "bf16", "fp16"})
      .not_built_values({"fp16"});
  t.add("train.master_weights", &c.master_weights,
        "false: weights and states live in the compute type");
  t.add("train.epochs", &c.epochs, "or steps").at_least(1);
  t.add("train.steps", &c.steps, "optimizer steps; 0 writes the initial weights to final/")
      .at_least(0);
  t.add("train.global_batch", &c.global_batch, "rows per optimizer step").at_least(1);
  t.add("train.micro_batch", &c.micro_batch, "most rows per pass").at_least(1);
  t.add("train.grad_accum", &c.grad_accum, "0 = global_batch / micro_batch").at_least(0);
  t.add("train.optimizer", &c.optimizer, "update rule")
      .one_of({"adamw", "adamw8bit", "sgd"})
      .not_built_values({"adamw8bit", "sgd"});
  t.add("train.lr", &c.schedule.lr, "learning rate").at_least(0);
  t.add("train.schedule", &c.schedule.schedule, "shape of the rate")
      .one_of({"constant", "linear", "cosine", "wsd", "log_warmup"});
  t.add("train.warmup_steps", &c.schedule.warmup_steps, "steps of rising rate").at_least(0);
  t.add("train.decay_steps", &c.schedule.decay_steps, "wsd: last steps of falling rate")
      .at_least(0);
  t.add("train.min_lr_ratio", &c.schedule.min_lr_ratio, "floor of the rate").between(0, 1);
  t.add("train.betas", &c.betas, "AdamW").at_least(0).below(1).length(2);
  t.add("train.eps", &c.eps, "AdamW").above(0);
  t.add("train.weight_decay", &c.weight_decay, "AdamW").at_least(0);
  t.add("train.decay_all", &c.decay_all, "false: no decay on norms and biases");
  t.add("train.clip_norm", &c.clip_norm, "0 = off").at_least(0);
  t.add("train.recompute", &c.recompute, "activations computed again")
      .one_of({"none", "full", "selective"})
      .not_built_values({"full", "selective"});
  t.add("train.offload", &c.offload, "what lives outside the device")
      .one_of({"none", "optimizer", "all"})
      .not_built_values({"optimizer", "all"});
  t.add("train.offload_to", &c.offload_to, "cpu or a folder").not_built("offload");
  t.add("train.log_every", &c.log_every, "steps between lines on the terminal").at_least(1);
  t.add("train.eval_every", &c.eval_every, "steps; 0 = per epoch").at_least(0);
}

void bind_rest(OptionTable& t, RunConfig& c) {
  t.add("checkpoint.every", &c.checkpoint.every, "steps; 0 = per epoch").at_least(0);
  t.add("checkpoint.keep", &c.checkpoint.keep, "newest N; the best is kept too").at_least(1);
  t.add("checkpoint.async", &c.checkpoint.async,
        "beside the steps; not built: every checkpoint is written before the next step");
  t.add("launch.nodes", &c.launch.nodes, "machines").at_least(1).not_built(kMesh);
  t.add("launch.ranks_per_node", &c.launch.ranks_per_node, "dp x tp; 0 = as many as that")
      .at_least(0)
      .at_most(1 << 20);
  t.add("launch.threads", &c.launch.threads, "CPU threads a rank; 0 = all cores")
      .at_least(0)
      .at_most(1024);
  t.add("launch.device", &c.launch.device, "where to compute")
      .one_of({"auto", "cpu", "cuda"})
      .not_built_values({"cuda"});
  t.add("launch.interface", &c.launch.interface, "address that ranks listen on").not_built(kMesh);
  t.add("launch.elastic", &c.launch.elastic, "change dp when a node is lost")
      .not_built("elastic runs");
  t.add("launch.max_restarts", &c.launch.max_restarts, "of failed ranks").not_built("restarts");
  t.add("launch.snapshot_every", &c.launch.snapshot_every, "steps between snapshots in memory")
      .not_built("snapshots");
  t.add("launch.hang_timeout_s", &c.launch.hang_timeout_s, "0 = max(30, 10 x the median step)")
      .not_built("the hang watch");
  t.add("launch.env", &c.launch.env, "variables of the ranks").not_built(kMesh);
  t.add("track.tensorboard", &c.track.tensorboard, "event files").not_built("TensorBoard");
  t.add("track.mlflow", &c.track.mlflow, "tracking server").not_built("MLflow");
  t.add("track.wandb", &c.track.wandb, "project").not_built("W&B");
}

// "1, 2, 4, 8"; of large numbers the first ones.
std::string divisors_text(int64_t n) {
  constexpr int64_t kMostTried = 1 << 20;
  constexpr int kMostShown = 24;
  std::string text;
  int shown = 0;
  for (int64_t d = 1; d <= std::min(n, kMostTried) && shown < kMostShown; ++d) {
    if (n % d != 0) continue;
    text += fmt::format("{}{}", shown++ > 0 ? ", " : "", d);
  }
  return text;
}

// What the run file's layout needs against what it says is there.
void check_ranks(const RunConfig& c, std::vector<std::string>* complaints) {
  const int64_t wanted = c.parallel.dp * c.parallel.tp, there = c.launch.ranks_per_node;
  if (there == 0 || wanted == there) return;
  complaints->push_back(fmt::format(
      "parallel.dp={} x parallel.tp={} needs {} ranks, but launch.ranks_per_node is {}: set it to "
      "{} (or 0), or parallel.tp to one of {} and parallel.dp to {} / tp",
      c.parallel.dp, c.parallel.tp, wanted, there, wanted, divisors_text(there), there));
}

void check_rows(const DataConfig& d, std::vector<std::string>* complaints) {
  const bool pair = !d.source.empty() || !d.target.empty();
  if (pair && (d.source.empty() || d.target.empty())) {
    complaints->push_back(fmt::format("data.{} is given without data.{}: both are needed",
                                      d.source.empty() ? "target" : "source",
                                      d.source.empty() ? "source" : "target"));
  }
  if (pair + !d.text.empty() + !d.messages.empty() > 1) {
    complaints->push_back(
        "more than one of data.text, data.source + data.target and data.messages is given: exactly "
        "one is wanted");
  }
  if (!d.eval.empty() && d.eval_fraction > 0) {
    complaints->push_back("data.eval and data.eval_fraction are both given: one is wanted");
  }
}

}  // namespace

int64_t RunConfig::micro_batch() const {
  const int64_t most = std::min(train.micro_batch, train.global_batch / parallel.dp);
  // Exact: a pass is one leaf, whatever micro_batch would allow.
  return std::max<int64_t>(1, parallel.mode == "exact" ? parallel.exact_rows : most);
}
int64_t RunConfig::num_passes() const { return train.global_batch / (parallel.dp * micro_batch()); }

void check_batch(const RunConfig& c, std::vector<std::string>* complaints) {
  const TrainConfig& t = c.train;
  const int64_t dp = c.parallel.dp, micro = c.micro_batch();
  if (t.global_batch % dp != 0) {
    complaints->push_back(fmt::format(
        "train.global_batch {} is no multiple of parallel.dp {}, and every rank computes "
        "as many rows: set parallel.dp to one of {}, or change the batch",
        t.global_batch, dp, divisors_text(t.global_batch)));
    return;
  }
  if (c.parallel.mode == "exact" && t.global_batch % (dp * c.parallel.exact_rows) != 0) {
    complaints->push_back(
        fmt::format("train.global_batch {} is no multiple of parallel.dp {} x exact_rows {}",
                    t.global_batch, dp, c.parallel.exact_rows));
    return;
  }
  if (c.parallel.mode == "exact" && c.parallel.exact_rows > t.micro_batch) {
    complaints->push_back(
        fmt::format("parallel.exact_rows {} rows are computed together, but train.micro_batch "
                    "allows {}: raise it, or lower exact_rows",
                    c.parallel.exact_rows, t.micro_batch));
    return;
  }
  const int64_t rows = t.global_batch / dp;
  if (rows % micro != 0) {
    complaints->push_back(fmt::format(
        "train.global_batch {}{} is no multiple of train.micro_batch {}: set "
        "micro_batch to a divisor ({})",
        t.global_batch, dp > 1 ? fmt::format(" / dp {}", dp) : "", micro, divisors_text(rows)));
  } else if (t.grad_accum != 0 && t.grad_accum != rows / micro) {
    complaints->push_back(fmt::format(
        "train.grad_accum is {}, but global_batch {} / (dp {} x micro_batch {}) gives {}: leave it "
        "at 0",
        t.grad_accum, t.global_batch, dp, micro, rows / micro));
  }
}

void bind_options(OptionTable* table, RunConfig* c) {
  table->add("name", &c->name, "the run directory is <storage>/<name>").required();
  table->add("storage", &c->storage, "folder of the run directories");
  table->add("seed", &c->seed, "of weights, order and split").at_least(0);
  bind_model(*table, c->model);
  bind_data(*table, c->data);
  bind_parallel(*table, c->parallel);
  bind_train(*table, c->train);
  bind_rest(*table, *c);
}

void check_config(const OptionTable& table, const RunConfig& c,
                  std::vector<std::string>* complaints) {
  check_rows(c.data, complaints);
  check_ranks(c, complaints);
  check_batch(c, complaints);
  // A resolved file has both: the default beside what was given is no contradiction.
  if (c.train.steps && table.was_given("train.epochs") && c.train.epochs != TrainConfig().epochs) {
    complaints->push_back("train.steps and train.epochs are both given: one is wanted");
  }
  const bool named = table.was_given("name");
  if (named && (c.name.empty() || c.name.find('/') != std::string::npos || c.name == "." ||
                c.name == "..")) {
    complaints->push_back(fmt::format("name \"{}\" must be a plain folder name", c.name));
  }
  if (c.storage.starts_with("s3://")) complaints->push_back("storage on s3:// is not built");
}

RunFile::RunFile(const std::filesystem::path& path, const std::vector<std::string>& sets, Use use)
    : table_(std::make_unique<OptionTable>()) {
  if (use == Use::kLook) table_->take_not_built();
  bind_options(table_.get(), &config_);
  std::vector<std::string> complaints;
  const std::string text = read_file(path, 1 << 20);
  table_->read(parse_yaml(text, path.string()), path.string(), complaints);
  for (const std::string& set : sets) table_->set(set, complaints);
  table_->check_required(complaints);
  check_config(*table_, config_, &complaints);
  refuse(complaints);
}

namespace {

// Keys whose change makes another training; the others may change when a run goes on.
bool is_fixed(const std::string& key) {
  return key.starts_with("model.") || key.starts_with("data.") || key == "seed" ||
         key == "train.global_batch" || key == "train.precision" || key == "train.master_weights" ||
         key == "train.optimizer";
}

}  // namespace

RunChanges compare_runs(const std::string& stored, const std::string& resolved) {
  const auto values = [](const std::string& text, const char* what) {
    RunConfig config;
    OptionTable table;
    bind_options(&table, &config);
    std::vector<std::string> complaints;
    table.read(parse_yaml(text, what), what, complaints);
    refuse(complaints);
    std::map<std::string, std::string> found;
    for (const OptionEntry& e : table.entries()) found[e.key] = e.value;
    return found;
  };
  const auto before = values(stored, "the stored run.yaml"), now = values(resolved, "the run file");
  RunChanges changes;
  for (const auto& [key, value] : now) {
    const auto old = before.find(key);
    if (old == before.end() || old->second == value) continue;
    (is_fixed(key) ? changes.refused : changes.allowed)
        .push_back(fmt::format("{}: {} -> {}", key, old->second, value));
  }
  return changes;
}

}  // namespace weft
