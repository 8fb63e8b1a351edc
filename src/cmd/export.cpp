// cmd/export.cpp: weft export CHECKPOINT OUT_DIR.
#include "checkpoint/export.h"

#include "base/byte_size.h"
#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/export_torch.h"
#include "checkpoint/match_config.h"
#include "cmd/command.h"
#include "cmd/export_optimizer.h"
#include "io/file_system.h"
#include "io/hf_folder.h"
#include "train/local_copy.h"
#include "train/run_history.h"

namespace weft {
namespace {

struct ExportWords {
  std::string source, out, config, format = "hf", dtype, max_shard_size;
  bool overwrite = false;
};

std::optional<Dtype> find_dtype(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (Dtype d : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    if (name == dtype_name(d)) return d;
  }
  throw UserError(fmt::format("--dtype {}, wanted fp32, bf16 or fp16", name));
}

ExportOptions checked_options(const ExportWords& options) {
  const bool is_deepspeed = options.format == "deepspeed";
  require(options.format == "hf" || options.format == "dcp" || is_deepspeed,
          "--format {}, wanted hf, dcp or deepspeed", printable_line(options.format));
  ExportOptions how;
  how.dtype = find_dtype(options.dtype);
  how.overwrite = options.overwrite;
  if (is_deepspeed && how.dtype.value_or(Dtype::kF32) != Dtype::kF32)
    throw UserError(
        fmt::format("--dtype {} with --format deepspeed, whose weights are fp32", options.dtype),
        "leave --dtype out: DeepSpeed makes its own copies in its configuration's precision");
  if (is_deepspeed && !options.max_shard_size.empty())
    throw UserError("--max-shard-size with --format deepspeed, which has one file per tensor",
                    "leave --max-shard-size out");
  if (!options.max_shard_size.empty())
    how.max_shard_bytes = parse_byte_size(options.max_shard_size, "--max-shard-size");
  return how;
}

std::string dtype_words(const ExportWords& options) {
  if (options.format == "deepspeed") return "fp32";
  return options.dtype.empty() ? "in the stored dtype (default)" : options.dtype;
}

// The formats of training programs; the message says whether the optimizer's states are there too.
std::string export_for_training(const LogicalModel& model, const ExportWords& options,
                                const ExportOptions& how) {
  const std::optional<TorchOptimizer> optimizer = stored_optimizer(model);
  if (options.format == "dcp") {
    export_dcp(model, optimizer, options.out, how);
  } else {
    export_deepspeed(model, optimizer, options.out, how);
  }
  if (!optimizer) return "; weights only, the source records no optimizer of weft";
  return fmt::format("; {}'s {} states after {} updates", optimizer->name, model.states.size(),
                     optimizer->step);
}

int run_export(const ExportWords& options) {
  const ExportOptions how = checked_options(options);
  if (is_uri(options.out))
    throw UserError(
        fmt::format("{}: an export is written to a folder of this machine", options.out),
        "give a local folder, and upload it");
  const LocalCopy copy(options.source);
  LogicalModel model = open_logical(copy.path());
  warn_of_early_stop(copy.path());
  require_all_read(model);
  if (!options.config.empty()) use_config_of(model, resolve_model_path(options.config));
  if (model.config.is_null()) {
    throw UserError(
        fmt::format("{} has no config.json, which an export needs", model.path.string()),
        "give the folder that has it, and the tokenizer: --config FOLDER");
  }
  match_config(model);
  std::string more;
  if (options.format == "hf") {
    export_hf(model.weights, model.config, read_side_files(model), options.out, how);
  } else {
    more = export_for_training(model, options, how);
  }
  fmt::print("{}: {} tensors of {}, {}{}\n", printable_line(options.out), model.weights.size(),
             printable_line(model.path.string()), dtype_words(options), more);
  return 0;
}

}  // namespace

RunCommand add_export(CommandOptions& app) {
  const auto options = std::make_shared<ExportWords>();
  app.add_option("CHECKPOINT", options->source,
                 "checkpoint, run directory, model folder, file of tensors")
      ->required();
  app.add_option("OUT_DIR", options->out, "new folder")->required();
  app.add_option("--format", options->format,
                 "hf: a Hugging Face folder (default); dcp: torch.distributed.checkpoint; "
                 "deepspeed: a universal checkpoint");
  app.add_option("--config", options->config,
                 "folder with config.json and tokenizer, where CHECKPOINT has none");
  app.add_option("--dtype", options->dtype, "fp32, bf16 or fp16; default: as stored");
  app.add_option("--max-shard-size", options->max_shard_size, "of a file; default: 5GB");
  app.add_flag("--overwrite", options->overwrite, "replace an existing export");
  return [options] { return run_export(*options); };
}

}  // namespace weft
