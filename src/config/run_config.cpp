// config/run_config.cpp: the one table of keys; help, defaults and validation come from it.
#include "config/run_config.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "config/elastic.h"
#include "config/launch_env.h"
#include "kernel/device_kernels.h"

namespace weft {
namespace {

void bind_model(OptionTable& t, ModelConfig& c) {
  t.add("model.path", &c.path,
        "Hugging Face folder, a hub name in the Hugging Face cache, or a checkpoint folder of "
        "DeepSpeed or torch.distributed with config.json")
      .required();
  t.add("model.init", &c.init,
        "pretrained: the weights of model.path; random: the architecture's own initialization, "
        "drawn from seed (config.json is enough)")
      .one_of({"pretrained", "random"});
  t.add("model.num_layers", &c.num_layers,
        "keep only the first layers (of an encoder-decoder: of both stacks); null = all")
      .at_least(1);
  t.add("model.dropout", &c.dropout,
        "of all sites that the family has, in training only; null = the configuration's "
        "(attention_dropout, resid_pdrop ...)")
      .at_least(0)
      .below(1);
  t.add("model.freeze", &c.freeze, "globs of parameters without gradient and state");
}

void bind_data(OptionTable& t, DataConfig& c) {
  t.add("data.train", &c.train, "files, globs, folders, s3://, hf://datasets/NAME/FILE").required();
  t.add("data.eval", &c.eval, "the same, for evaluation; or data.eval_fraction");
  t.add("data.eval_fraction", &c.eval_fraction,
        "evaluate on this fraction of data.train, chosen by seed")
      .at_least(0)
      .below(1);
  t.add("data.format", &c.format,
        "auto: by extension (.txt .jsonl .csv .tsv .parquet .arrow, text also .gz .zst)")
      .one_of({"auto", "text", "jsonl", "csv", "parquet", "arrow", "idx"})
      .not_built_values({"idx"});
  t.add("data.text", &c.text,
        "rows of plain text: a template over the columns; if none of text, source + target, "
        "messages is given: "
        "{text}");
  t.add("data.source", &c.source,
        "rows of prompt and answer: template of the prompt, which is masked in the loss");
  t.add("data.target", &c.target, "template of the answer, on which the loss is computed");
  t.add(
      "data.messages", &c.messages,
      "chat rows: the column that holds a list of {role, content}; loss on the assistant's turns");
  t.add("data.tokenizer", &c.tokenizer,
        "auto: that of model.path; bytes: built in, one id per byte; or a folder with tokenizer "
        "files");
  t.add("data.seq_length", &c.seq_length,
        "tokens of a row; longer rows are cut on the right, prompts first and on the left (pack: "
        "split)")
      .at_least(2)
      .at_most(1 << 20);
  t.add("data.target_length", &c.target_length, "tokens of an answer; encoder-decoder models only")
      .at_least(1);
  t.add("data.layout", &c.layout,
        "how rows fill a batch: padded to seq_length, padded to the longest row, or packed")
      .one_of({"pad", "dynamic", "pack"});
  t.add("data.mask_padding", &c.mask_padding,
        "padding is never a label; false: it is, and it attends to the row before it");
  t.add("data.drop_empty", &c.drop_empty,
        "drop rows of one token or less; for an encoder-decoder, rows with an empty answer (a "
        "causal model keeps these, learns only their closing token, and reports how many)");
  t.add("data.append_eos", &c.append_eos,
        "end-of-sequence token after a row; auto: after a target, not after plain text; tokens "
        "that the tokenizer's own template adds (T5: eos) always stay")
      .one_of({"auto", "true", "false"});
  t.add("data.fraction", &c.fraction,
        "use only this fraction of the rows, the first ones in file order; of data.eval too")
      .above(0)
      .at_most(1);
  t.add("data.limit", &c.limit, "use only the first N rows, of data.eval too; 0 = all").at_least(0);
  t.add("data.max_row_bytes", &c.max_row_bytes,
        "maximum size of a row; a longer row is an error; bytes, or 16MB, 64MiB");
  t.add("data.shuffle", &c.shuffle, "a new order of the rows each epoch, by seed");
}

void bind_parallel(OptionTable& t, ParallelConfig& c) {
  t.add("parallel.dp", &c.dp,
        "data-parallel ranks: each computes its share of global_batch; ranks = dp x tp")
      .at_least(1)
      .at_most(1 << 20);
  t.add("parallel.tp", &c.tp, "tensor-parallel ranks: split heads, feed-forward and vocabulary")
      .at_least(1)
      .at_most(64);
  t.add("parallel.shard", &c.shard,
        "what is sharded over the dp ranks: none (DDP), zero1 (states), zero2 (+ gradients), zero3 "
        "(+ parameters; also called fsdp)")
      .one_of({"none", "zero1", "zero2", "zero3", "fsdp"});
  t.add("parallel.mode", &c.mode,
        "fast: the fastest kernels and reductions; exact: the same bits in every layout")
      .one_of({"fast", "exact"});
  t.add("parallel.exact_tp", &c.exact_tp,
        "exact mode: leaves of a split contraction, a power of two up to 8 that tp divides, so "
        "that tp is at most 8 too; 0 = the largest that divides heads, key/value heads and width; "
        "above the number of key/value heads, these are copied")
      .at_least(0);
  t.add("parallel.exact_dp", &c.exact_dp,
        "exact mode: groups of rows, a power of two up to 256 that divides global_batch / "
        "exact_rows; 0 = the largest up to 8. dp may be any divisor of global_batch / exact_rows; "
        "one that also divides exact_dp communicates the least")
      .at_least(0);
  t.add("parallel.exact_rows", &c.exact_rows,
        "exact mode: rows computed together; must divide global_batch / dp, at most "
        "micro_batch")
      .at_least(1);
}

void bind_train(OptionTable& t, TrainConfig& c) {
  t.add("train.precision", &c.precision,
        "compute type; auto: on GPUs bf16 where they have it, else fp16 (T5: fp32), on the CPU "
        "fp32; fp16 (GPUs only) uses dynamic loss scaling; final/ is always written in the type of "
        "model.path's weights (model.init: random: fp32; `weft export --dtype` converts)")
      .one_of({"auto", "fp32", "bf16", "fp16"})
      .answer(other_precision_words);
  t.add("train.tf32", &c.tf32,
        "fp32 matrix products on a GPU may use TF32 (10 mantissa bits): several times faster, less "
        "accurate; attention stays fp32; not in exact mode");
  t.add("train.master_weights", &c.master_weights,
        "bf16, fp16: also keep fp32 weights and states; false: everything in bf16 (not with fp16)");
  t.add("train.loss_scale", &c.loss_scale,
        "fp16: the initial scale, a power of two; halved where a gradient overflows, doubled after "
        "2000 good steps")
      .at_least(1)
      .at_most(0x1p32);
  t.add("train.epochs", &c.epochs, "passes over the data; or train.steps").at_least(1);
  t.add("train.steps", &c.steps,
        "optimizer steps, instead of epochs; 0 writes the initial weights to final/")
      .at_least(0);
  t.add("train.global_batch", &c.global_batch,
        "rows per optimizer step, over all ranks: the same training in every layout")
      .at_least(1)
      .at_most(1 << 30);
  t.add("train.micro_batch", &c.micro_batch,
        "maximum rows per rank and pass; the rest of its share follows in further passes")
      .at_least(1)
      .at_most(1 << 30);
  t.add("train.grad_accum", &c.grad_accum,
        "passes per step; 0 = global_batch / (dp x micro_batch), the only accepted value")
      .at_least(0);
  t.add("train.optimizer", &c.optimizer.name,
        "update rule: AdamW, or SGD with train.momentum, as PyTorch's")
      .one_of({"adamw", "adamw8bit", "sgd"})
      .not_built_values({"adamw8bit"});
  t.add("train.lr", &c.schedule.lr, "learning rate").at_least(0);
  t.add("train.schedule", &c.schedule.schedule, "learning rate after warmup_steps")
      .one_of({"constant", "linear", "cosine", "wsd", "log_warmup"});
  t.add("train.warmup_steps", &c.schedule.warmup_steps, "steps over which the rate rises to lr")
      .at_least(0);
  t.add("train.decay_steps", &c.schedule.decay_steps, "wsd: final steps with falling rate")
      .at_least(0);
  t.add("train.min_lr_ratio", &c.schedule.min_lr_ratio, "the rate falls to lr times this")
      .between(0, 1);
  t.add("train.betas", &c.optimizer.betas, "AdamW: decay rates of the two moments")
      .at_least(0)
      .below(1)
      .length(2);
  t.add("train.eps", &c.optimizer.eps, "AdamW: added to the root of the second moment").above(0);
  t.add("train.momentum", &c.optimizer.momentum,
        "SGD: part of the last step that is added to the next; 0: none, and no state")
      .at_least(0)
      .below(1);
  t.add("train.weight_decay", &c.optimizer.weight_decay,
        "AdamW: weights shrink by lr times this each step; SGD: the weight times this is added to "
        "the gradient")
      .at_least(0);
  t.add("train.decay_all", &c.optimizer.decay_all, "false: no decay on norms and biases");
  t.add("train.clip_norm", &c.clip_norm, "maximum gradient norm; 0 = off").at_least(0);
  t.add("train.recompute", &c.recompute, "recompute activations instead of keeping them")
      .one_of({"none", "full", "selective"})
      .not_built_values({"full", "selective"});
  t.add("train.offload", &c.offload, "what lives outside the device")
      .one_of({"none", "optimizer", "all"})
      .not_built_values({"optimizer", "all"});
  t.add("train.offload_to", &c.offload_to, "cpu or a folder").not_built("offload");
  t.add("train.log_every", &c.log_every,
        "steps between lines on the terminal, 0 = no lines; metrics.jsonl has every step")
      .at_least(0);
  t.add("train.eval_every", &c.eval_every, "steps between evaluations; 0 = each epoch").at_least(0);
  t.add("train.early_stop", &c.early_stop,
        "end after this many evaluations in a row without a better value of checkpoint.best; "
        "final/ is then the best model; 0 = off")
      .at_least(0);
}

void bind_eval(OptionTable& t, EvalConfig& c) {
  t.add("eval.generate", &c.generate,
        "rows of prompt and answer to answer at each evaluation in training, the first ones in "
        "file order; 0 = none (`weft eval` answers all)")
      .at_least(0)
      .at_most(1 << 30);
  t.add("eval.match", &c.match,
        "how answers are compared with data.target: exact; or also as SQL, where case outside "
        "quotes (ASCII letters), spaces, kind of quotes, semicolons at the end and the order of a "
        "WHERE's conditions joined by AND do not matter")
      .one_of({"exact", "sql"});
  t.add("eval.max_new_tokens", &c.max_new_tokens, "tokens of a generated answer")
      .at_least(1)
      .at_most(1 << 20);
}

void bind_checkpoint(OptionTable& t, RunConfig& c) {
  t.add("checkpoint.every", &c.checkpoint.every,
        "steps between checkpoints; 0 = each epoch; always one at the end")
      .at_least(0);
  t.add("checkpoint.keep", &c.checkpoint.keep,
        "how many of the newest checkpoints to keep; the best by evaluation is kept too")
      .at_least(1);
  t.add("checkpoint.best", &c.checkpoint.best,
        "the measure of the best checkpoint; exact_match needs eval.generate and eval.match exact, "
        "sql_match needs eval.generate and eval.match sql; of evaluations with the same match the "
        "one with the lowest eval_loss is the best, while train.early_stop counts by the match "
        "alone")
      .one_of({"eval_loss", "exact_match", "sql_match"});
  t.add("checkpoint.fallback", &c.checkpoint.fallback,
        "folder of the local copy of a run whose storage is s3://; empty = below the cache folder");
  t.add(
      "checkpoint.async", &c.checkpoint.async,
      "write checkpoints while training continues, from a copy of the state; not by default where "
      "memory is short");
}

void bind_rest(OptionTable& t, RunConfig& c) {
  t.add("launch.nodes", &c.launch.nodes, "machines (docs/operate.md, Several machines)")
      .at_least(1)
      .at_most(1 << 16);
  t.add("launch.ranks_per_node", &c.launch.ranks_per_node,
        "ranks on each node; 0 = dp x tp / nodes, the only accepted value; tp divides it")
      .at_least(0)
      .at_most(1 << 20);
  t.add("launch.threads", &c.launch.threads, "CPU threads per rank; 0 = cores / ranks")
      .at_least(0)
      .at_most(1024);
  auto& device =
      t.add("launch.device", &c.launch.device, "where to compute; cuda: a build with CUDA (README)")
          .one_of({"auto", "cpu", "cuda"})
          .answer(other_device_words);
  if (!cuda_kernels()) {
    device.not_built_values({"cuda"},
                            "set launch.device to auto or cpu, or build with -DWEFT_CUDA=ON "
                            "(README, On a GPU), whose weft plan --set launch.device=cuda needs no "
                            "GPU");
  }
  t.add("launch.interface", &c.launch.interface,
        "where ranks and the supervisor listen when they communicate over TCP: lo, eth0, or an "
        "address; several nodes need another one than lo");
  t.add("launch.port", &c.launch.port, "where the supervisor of several nodes listens; 0 = any")
      .at_least(0)
      .at_most(65535);
  t.add("launch.join_timeout_s", &c.launch.join_timeout_s,
        "seconds that a run waits for its nodes, and for another one where one was lost")
      .at_least(1)
      .at_most(7 * 86400);
  t.add("launch.elastic", &c.launch.elastic,
        "continue with fewer nodes, and so a smaller dp, where one is lost and no spare is there, "
        "and with more when nodes join; the global batch stays");
  t.add(
       "launch.min_nodes", &c.launch.min_nodes,
       "the fewest nodes with which an elastic run trains; it starts as soon as they are there and "
       "no other has joined for two seconds; 0 = one, but the start waits for all nodes "
       "(launch.join_timeout_s)")
      .at_least(0);
  t.add("launch.max_restarts", &c.launch.max_restarts,
        "how often dead ranks are replaced before the run ends; -1 = without bound. Of two ranks "
        "or more: a run of one has no supervisor")
      .at_least(-1);
  t.add("launch.restart_reset_steps", &c.launch.restart_reset_steps,
        "steps after which earlier restarts are forgotten; 0 = never")
      .at_least(0);
  t.add(
      "launch.snapshot_every", &c.launch.snapshot_every,
      "steps between copies of the state in memory, from which a run with a dead rank continues: "
      "auto (as often as it costs under 2 %), a number, 0 = none (it continues from a checkpoint)");
  t.add("launch.hang_timeout_s", &c.launch.hang_timeout_s,
        "seconds that ranks wait for one of them, which is then killed and replaced; 0 = max(30, "
        "10 x the median step). Of two ranks or more")
      .at_least(0)
      .at_most(86400);
  t.add("launch.slurm", &c.launch.slurm,
        "options of sbatch for --engine slurm: {partition: gpu, time: \"4:00:00\"}; no value: a "
        "flag");
  t.add("launch.env", &c.launch.env,
        "environment variables of the ranks; values whose names say TOKEN, SECRET, KEY or PASSWORD "
        "are neither printed nor stored")
      .hide(is_secret_name, kHidden);
  t.add("track.tensorboard", &c.track.tensorboard, "event files").not_built("TensorBoard");
  t.add("track.mlflow", &c.track.mlflow, "tracking server").not_built("MLflow");
  t.add("track.wandb", &c.track.wandb, "project").not_built("W&B");
}

}  // namespace

void bind_options(OptionTable* table, RunConfig* c) {
  table->add("name", &c->name, "the run directory is <storage>/<name>").required();
  table->add("storage", &c->storage, "folder of the run directories, or s3://bucket/prefix");
  table->add("seed", &c->seed, "of initial weights, row order and eval split").at_least(0);
  bind_model(*table, c->model);
  bind_data(*table, c->data);
  bind_parallel(*table, c->parallel);
  bind_train(*table, c->train);
  bind_eval(*table, c->eval);
  bind_checkpoint(*table, *c);
  bind_rest(*table, *c);
  add_key_synonyms(table);
  table->add_alternatives({{"train.steps"}, {"train.epochs"}});
  table->add_alternatives({{"data.eval"}, {"data.eval_fraction"}});
  table->add_alternatives({{"data.text"}, {"data.source", "data.target"}, {"data.messages"}});
}

int64_t RunConfig::micro_batch() const {
  const int64_t most = std::min(train.micro_batch, train.global_batch / parallel.dp);
  // Exact: a pass is one leaf, whatever micro_batch would allow.
  return std::max<int64_t>(1, parallel.mode == "exact" ? parallel.exact_rows : most);
}
Dtype RunConfig::compute_dtype() const {
  ensure(train.precision != "auto", "train.precision: auto is chosen before it is used");
  if (train.precision == "bf16") return Dtype::kBf16;
  return train.precision == "fp16" ? Dtype::kF16 : Dtype::kF32;
}
int64_t RunConfig::loss_divisor() const {
  const int64_t positions = train.global_batch * data.seq_length;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(positions)));
}
int64_t RunConfig::num_passes() const { return train.global_batch / (parallel.dp * micro_batch()); }

RunFile::RunFile(const std::filesystem::path& path, const std::vector<std::string>& sets, Use use)
    : use_(use), table_(std::make_unique<OptionTable>()) {
  if (use == Use::kLook) table_->take_not_built();
  if (use == Use::kEval) {
    table_->take_not_built(
        {"train.optimizer", "train.recompute", "train.offload", "train.offload_to", "track."});
  }
  bind_options(table_.get(), &config_);
  std::vector<std::string> complaints;
  const std::string text = read_file(path, 1 << 20);
  table_->expect(sets);
  table_->read(parse_yaml(text, path.string()), path.string(), complaints);
  for (const std::string& set : sets) table_->set(set, complaints);
  table_->check_required(complaints);
  check(std::move(complaints));
}

void RunFile::check(std::vector<std::string> complaints) const {
  check_config(*table_, config_, &complaints);
  if (use_ != Use::kEval) check_training_evaluation(config_, &complaints);
  refuse(complaints);
}

void RunFile::log_replaced() const {
  for (const std::string& line : table_->replaced()) log_info("{}", line);
}

void RunFile::choose_precision(const std::string& value) {
  config_.train.precision = value;
  table_->mark_chosen("train.precision", "auto");
  check({});
}

void RunFile::use_nodes(int64_t nodes) {
  if (asked_.empty()) asked_ = table_->resolved();
  config_ = with_nodes(config_, nodes);
}

void RunFile::take_no_snapshots(const std::string& why) {
  config_.launch.snapshot_every = "0";
  table_->mark_chosen("launch.snapshot_every", why);
}

void RunFile::save_synchronously(const std::string& why) {
  config_.checkpoint.async = false;
  table_->mark_chosen("checkpoint.async", why);
}

}  // namespace weft
