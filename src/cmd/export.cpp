// cmd/export.cpp: weft export CHECKPOINT OUT_DIR.
#include "checkpoint/export.h"

#include <CLI/CLI.hpp>

#include "base/byte_size.h"
#include "base/error.h"
#include "base/printable.h"
#include "cmd/command.h"
#include "io/hf_folder.h"

namespace weft {
namespace {

struct Options {
  std::string source, out, config, dtype, max_shard_size = "5GB";
  bool overwrite = false;
};

std::optional<Dtype> find_dtype(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (Dtype d : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    if (name == dtype_name(d)) return d;
  }
  throw UserError(fmt::format("--dtype {}, wanted fp32, bf16 or fp16", name));
}

int run_export(const Options& options) {
  ExportOptions how;
  how.dtype = find_dtype(options.dtype);
  how.max_shard_bytes = parse_byte_size(options.max_shard_size, "--max-shard-size");
  how.overwrite = options.overwrite;
  LogicalModel model = open_logical(options.source);
  require_all_read(model);
  if (!options.config.empty()) use_config_of(model, resolve_model_path(options.config));
  if (model.config.is_null()) {
    throw UserError(fmt::format("{} has no config.json, which a Hugging Face folder needs",
                                model.path.string()),
                    "give the folder that has it, and the tokenizer: --config FOLDER");
  }
  export_hf(model.weights, model.config, read_side_files(model), options.out, how);
  fmt::print("{}: {} tensors of {}, {}\n", printable_line(options.out), model.weights.size(),
             printable_line(model.path.string()),
             how.dtype ? dtype_name(*how.dtype) : "in the stored dtype (default)");
  return 0;
}

}  // namespace

RunCommand add_export(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("CHECKPOINT", options->source,
                 "checkpoint, run directory, model folder, file of tensors")
      ->required();
  app.add_option("OUT_DIR", options->out, "new folder")->required();
  app.add_option("--config", options->config,
                 "folder with config.json and tokenizer, where CHECKPOINT has none");
  app.add_option("--dtype", options->dtype, "fp32, bf16 or fp16; default: as stored");
  app.add_option("--max-shard-size", options->max_shard_size, "default: 5GB");
  app.add_flag("--overwrite", options->overwrite, "replace an existing export");
  return [options] { return run_export(*options); };
}

}  // namespace weft
