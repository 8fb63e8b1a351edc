// config/key_synonyms.cpp: what other trainers call the keys of a run file, for suggestions;
// and what they call a device and a precision.
//
// Names from transformers' TrainingArguments, DeepSpeed's and torchtitan's configurations and
// common scripts. None is accepted: where two mean almost the same (batch per device, global
// batch), confusing them would train something else.
#include <fmt/core.h>

#include "base/options.h"
#include "config/run_config.h"

namespace weft {

namespace {

constexpr const char* kBatch =
    "train.global_batch (rows of all ranks in one optimizer step), and train.micro_batch "
    "(maximum rows per rank and pass)";
constexpr const char* kMicro =
    "train.micro_batch (maximum rows per rank and pass); train.global_batch is the number of "
    "rows "
    "per step, in every layout";
constexpr const char* kAccumulation =
    "train.grad_accum, but better left unset: train.global_batch is the same in every layout";
constexpr const char* kFolder =
    "storage (folder of the runs) and name: the run directory is <storage>/<name>";
constexpr const char* kLora =
    "no LoRA in this build; use model.freeze to train a subset of the parameters, or "
    "parallel.shard: zero3 to shard their memory over the ranks";
constexpr const char* kPrecision = "train.precision: auto, fp32, bf16 or fp16";
constexpr std::pair<const char*, const char*> kSynonyms[] = {
    {"learning_rate", "train.lr"},
    {"base_lr", "train.lr"},
    {"lr_scheduler", "train.schedule"},
    {"lr_scheduler_type", "train.schedule"},
    {"scheduler", "train.schedule"},
    {"min_lr", "train.min_lr_ratio (a fraction of train.lr)"},
    {"warmup", "train.warmup_steps"},
    {"num_warmup_steps", "train.warmup_steps"},
    {"warmup_ratio", "train.warmup_steps (a number of steps)"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"total_steps", "train.steps"},
    {"training_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"iterations", "train.steps"},
    {"num_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"batch_size", kBatch},
    {"train_batch_size", kBatch},
    {"global_batch_size", kBatch},
    {"micro_batch_size", kMicro},
    {"train_micro_batch_size_per_gpu", kMicro},
    {"per_device_train_batch_size", kMicro},
    {"per_device_eval_batch_size", kMicro},
    {"local_batch_size", kMicro},
    {"gradient_accumulation_steps", kAccumulation},
    {"accumulate_grad_batches", kAccumulation},
    {"gradient_clipping", "train.clip_norm"},
    {"grad_clip", "train.clip_norm"},
    {"max_norm", "train.clip_norm"},
    {"max_grad_norm", "train.clip_norm"},
    {"adam_beta1", "train.betas: [beta1, beta2]"},
    {"adam_beta2", "train.betas: [beta1, beta2]"},
    {"beta1", "train.betas: [beta1, beta2]"},
    {"beta2", "train.betas: [beta1, beta2]"},
    {"adam_epsilon", "train.eps"},
    {"epsilon", "train.eps"},
    {"optim", "train.optimizer"},
    {"bf16", kPrecision},
    {"fp16", kPrecision},
    {"dtype", kPrecision},
    {"torch_dtype", kPrecision},
    {"mixed_precision", kPrecision},
    {"tf32", "train.tf32"},
    {"allow_tf32", "train.tf32"},
    {"gradient_checkpointing", "train.recompute"},
    {"activation_checkpointing", "train.recompute"},
    {"logging_steps", "train.log_every"},
    {"log_interval", "train.log_every"},
    {"eval_steps", "train.eval_every"},
    {"eval_interval", "train.eval_every"},
    {"eval_strategy", "train.eval_every"},
    {"early_stopping", "train.early_stop (evaluations without progress)"},
    {"early_stopping_patience", "train.early_stop (evaluations without progress)"},
    {"patience", "train.early_stop (evaluations without progress)"},
    {"metric_for_best_model", "checkpoint.best: eval_loss, exact_match or sql_match"},
    {"predict_with_generate", "eval.generate (rows to answer at each evaluation)"},
    {"generation_max_length", "eval.max_new_tokens"},
    {"save_steps", "checkpoint.every"},
    {"save_interval", "checkpoint.every"},
    {"save_every", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"output_dir", kFolder},
    {"out_dir", kFolder},
    {"run_dir", kFolder},
    {"run_name", "name"},
    {"experiment", "name"},
    {"random_seed", "seed"},
    {"model_name", "model.path"},
    {"model_name_or_path", "model.path"},
    {"pretrained_model_name_or_path", "model.path"},
    {"model_path", "model.path"},
    {"from_scratch", "model.init: random"},
    {"tokenizer_name", "data.tokenizer"},
    {"tokenizer_path", "data.tokenizer"},
    {"dataset", "data.train"},
    {"train_file", "data.train"},
    {"train_files", "data.train"},
    {"data_path", "data.train"},
    {"validation_file", "data.eval"},
    {"eval_file", "data.eval"},
    {"validation", "data.eval"},
    {"validation_split", "data.eval_fraction"},
    {"max_length", "data.seq_length"},
    {"max_seq_length", "data.seq_length"},
    {"max_seq_len", "data.seq_length"},
    {"seq_len", "data.seq_length"},
    {"block_size", "data.seq_length"},
    {"context_length", "data.seq_length"},
    {"max_target_length", "data.target_length"},
    {"prompt", "data.source (and data.target, the answer)"},
    {"completion", "data.target (and data.source, the prompt)"},
    {"packing", "data.layout"},
    {"text_column", "data.text: a template over the columns, \"{text}\""},
    {"dataset_text_field", "data.text: a template over the columns, \"{text}\""},
    {"conversations", "data.messages: the name of that column"},
    {"data_parallel", "parallel.dp"},
    {"data_parallel_size", "parallel.dp"},
    {"tensor_parallel", "parallel.tp"},
    {"tensor_parallel_size", "parallel.tp"},
    {"tensor_parallel_degree", "parallel.tp"},
    {"zero_stage", "parallel.shard: zero1, zero2 or zero3"},
    {"zero_optimization", "parallel.shard: zero1, zero2 or zero3"},
    {"fsdp", "parallel.shard: zero3"},
    {"num_nodes", "launch.nodes"},
    {"nnodes", "launch.nodes"},
    {"nproc_per_node", "launch.ranks_per_node (0: as many as dp x tp)"},
    {"num_threads", "launch.threads"},
    {"device_map", "launch.device"},
    {"dataset_percentage", "data.fraction (0.01 is 1 %)"},
    {"dataset_name", "data.train (files, or hf://datasets/ORG/NAME)"},
    {"init_weights_path", "model.path, with model.init: pretrained"},
    {"batch_size_per_gpu", kMicro},
    {"per_device_batch", kMicro},
    {"per_device_batch_size", kMicro},
    {"num_workers", "parallel.dp and parallel.tp: ranks = dp x tp"},
    {"storage_path", "storage"},
    {"max_failures", "launch.max_restarts"},
    {"debug_steps", "train.steps"},
};
// Keys of other trainers that have no counterpart here.
constexpr std::pair<const char*, const char*> kAbsent[] = {
    {"pp", "no pipeline parallelism; parallel.tp and parallel.shard: zero3 split a model"},
    {"pipeline_parallel_size",
     "no pipeline parallelism; parallel.tp and parallel.shard: zero3 split a model"},
    {"cp", "no context parallelism; parallel.tp reduces activation memory per rank"},
    {"context_parallel_size",
     "no context parallelism; parallel.tp reduces activation memory per rank"},
    {"ep", "no expert parallelism; mixture-of-experts models are not supported"},
    {"lora_r", kLora},
    {"lora_alpha", kLora},
    {"lora_rank", kLora},
    {"lora", kLora},
    {"use_peft", kLora},
    {"resume_from", "the same command resumes the run; --resume CHECKPOINT selects a checkpoint"},
    {"label_smoothing", "the loss is cross entropy without label smoothing"},
    {"label_smoothing_factor", "the loss is cross entropy without label smoothing"},
    {"deepspeed",
     "DeepSpeed configuration files are not read; use parallel.shard, train.global_batch and "
     "train.precision"},
    {"report_to",
     "trackers are not built; read metrics.jsonl and events.jsonl in the run directory"},
    {"push_to_hub", "final/ is a Hugging Face folder; upload it with `hf upload ORG/NAME final`"},
    {"save_init_weights", "train.steps: 0, which writes the initial weights to final/"},
};

}  // namespace

void add_key_synonyms(OptionTable* table) {
  for (const auto& [other, instead] : kSynonyms) table->add_synonym(other, instead);
  for (const auto& [other, answer] : kAbsent) table->add_absent(other, answer);
}

namespace {

// The beginning of a word that is longer than any known one.
std::string lower_case(std::string_view value) {
  std::string word(value.substr(0, 16));
  for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return word;
}

}  // namespace

// "gpu" is one letter from "cpu", the opposite of what is meant.
std::string other_device_words(std::string_view value) {
  const std::string word = lower_case(value);
  for (const char* gpu : {"gpu", "gpus", "cuda", "nvidia"}) {
    if (word == gpu) return ", did you mean \"cuda\"?";
    if (!word.starts_with(std::string(gpu) + ":")) continue;
    return ", did you mean \"cuda\"? GPUs are used in order; CUDA_VISIBLE_DEVICES selects them";
  }
  return "";
}

std::string other_precision_words(std::string_view value) {
  constexpr std::pair<const char*, const char*> kWords[] = {
      {"float16", "fp16"},  {"half", "fp16"}, {"f16", "fp16"},     {"fp16", "fp16"},
      {"bfloat16", "bf16"}, {"bf16", "bf16"}, {"float32", "fp32"}, {"float", "fp32"},
      {"single", "fp32"},   {"f32", "fp32"},  {"fp32", "fp32"}};
  const std::string word = lower_case(value);
  if (word == "tf32") return "; TF32 is train.tf32: true, with train.precision: fp32";
  for (const auto& [other, ours] : kWords) {
    for (const std::string prefix : {"", "torch."})
      if (word == prefix + other) return fmt::format(", did you mean \"{}\"?", ours);
  }
  return "";
}

}  // namespace weft
