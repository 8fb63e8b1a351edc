// config/session.cpp: opens things in the order in which mistakes are cheapest to report.
#include "config/session.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "data/column_hint.h"
#include "data/example.h"
#include "data/target_search.h"
#include "model/family.h"
#include "model/head_in_files.h"
#include "model/load.h"
#include "tensor/names.h"

namespace weft {
namespace {

std::unique_ptr<Tokenizer> open_tokenizer(const RunConfig& c, const HfFolder& folder) {
  if (c.data.tokenizer == "bytes") return make_bytes_tokenizer();
  if (c.data.tokenizer != "auto" && !std::filesystem::is_directory(c.data.tokenizer)) {
    throw UserError(fmt::format("data.tokenizer: {} is not a folder", c.data.tokenizer),
                    "wanted: auto (that of model.path), bytes (built in), or a folder");
  }
  return load_tokenizer(c.data.tokenizer == "auto" ? folder.path()
                                                   : std::filesystem::path(c.data.tokenizer));
}

// 'a', 'b' and 'c'
std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == names.size() ? " and " : ", ", names[i]);
  }
  return text;
}

// Reported here, where all columns are known, and only where the first row has none of the required
// ones: a row that lacks one is reported by its line.
void check_columns(const DataConfig& c, const RowSource& rows) {
  const std::vector<std::string> wanted = columns_used(c), names = rows.column_names();
  const auto is_there = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (wanted.empty() || std::any_of(wanted.begin(), wanted.end(), is_there)) return;
  const char* key = !c.messages.empty() ? "data.messages"
                    : c.target.empty()  ? "data.text"
                                        : "data.source and data.target";
  const bool is_one_key = c.target.empty() || !c.messages.empty();
  throw UserError(
      fmt::format("{}: there {} {}, which {} {} for; there are: {}", rows.where(0),
                  wanted.size() == 1 ? "is no column" : "are no columns", quoted_list(wanted), key,
                  is_one_key ? "asks" : "ask", fmt::join(names, ", ")),
      column_hint(c, wanted[0], names) + header_remark(rows, 0, c.format));
}

// Random weights are as config.json has them, whatever files are next to it.
Json config_of(const RunConfig& c, const HfFolder& folder) {
  return c.model.init == "random" ? folder.config() : config_in_force(folder);
}

}  // namespace

std::unique_ptr<Model> open_model(const RunConfig& c, const HfFolder& folder) {
  return make_model(config_of(c, folder), {c.model.num_layers.value_or(0), c.model.dropout},
                    folder.path());
}

void check_positions(const RunConfig& c, const Model& model) {
  if (c.data.seq_length <= model.max_positions()) return;
  throw UserError(fmt::format("data.seq_length is {}, but the model has {} positions",
                              c.data.seq_length, model.max_positions()),
                  fmt::format("set data.seq_length: {}, or {}", model.max_positions(),
                              model.way_to_more_positions()));
}

Session::Session(const RunConfig& run)
    : config(run),
      folder(resolve_model_path(run.model.path)),
      model_config(config_of(run, folder)),
      model(open_model(run, folder)),
      tokenizer(open_tokenizer(run, folder)),
      final_dtype(Dtype::kF32) {
  check_positions(run, *model);
  if (run.model.init == "random") return;
  folder.open_weights();
  warn_of_unknown_tensors(folder.tensor_names(), model_config, folder.path());
  final_dtype = stored_dtype(folder, *model);
}

std::unique_ptr<RowSource> Session::open_part(const std::vector<std::string>& paths,
                                              const char* what) const {
  const DataConfig& c = config.data;
  std::unique_ptr<RowSource> rows;
  try {
    rows = open_rows_for(c, paths, what);
  } catch (const UserError&) {
    // A table is not opened without its columns; looks up which columns it has instead.
    check_columns(c, *open_rows(paths, c.format, what));
    throw;
  }
  check_columns(c, *rows);
  return rows;
}

std::unique_ptr<RowSource> Session::open_train_rows() const {
  return open_part(config.data.train, "data.train");
}

std::unique_ptr<RowSource> Session::open_eval_rows() const {
  if (config.data.eval.empty()) return open_train_rows();
  return open_part(config.data.eval, "data.eval");
}

ModelKind Session::kind() const {
  return reads_source(*model) ? ModelKind::kEncoderDecoder : ModelKind::kCausal;
}

StreamOptions Session::train_stream() const {
  StreamOptions o;
  o.kind = kind();
  if (o.kind == ModelKind::kEncoderDecoder) o.decoder_start_id = model->start_id();
  o.needs_positions = reads_input(*model, names::kPositions);
  o.seed = static_cast<uint64_t>(config.seed);
  o.global_batch = config.train.global_batch;
  o.vocab_size = model->vocab_size();
  o.part = config.data.eval_fraction > 0 ? Part::kTrain : Part::kAll;
  o.splits_by_row = splits_by_row;
  return o;
}

StreamOptions Session::eval_stream() const {
  StreamOptions o = train_stream();
  o.part = config.data.eval_fraction > 0 ? Part::kEval : Part::kAll;
  o.once = true;
  o.rows_per_pass = config.parallel.mode == "exact" ? 0 : config.micro_batch();
  return o;
}

EvalSplit Session::eval_split(const RowSource& rows) const {
  return {static_cast<uint64_t>(config.seed), rows_taken(config.data, rows.size()),
          config.data.eval_fraction, splits_by_row};
}

bool Session::is_in_eval_part(const EvalSplit& split, int64_t i) const {
  return config.data.eval_fraction == 0 || split.contains(i);
}

void Session::check_eval_rows(const RowSource& rows) const {
  const DataConfig& data = config.data;
  const int64_t taken = rows_taken(data, rows.size());
  const EvalSplit split = eval_split(rows);
  for (int64_t i = 0; i < taken; ++i) {
    if (!is_in_eval_part(split, i)) continue;
    const ExampleMaker maker(data, *tokenizer, model->vocab_size(), kind());
    return require_eval_targets(
        data, maker, rows, taken, [&](int64_t row) { return is_in_eval_part(split, row); },
        data.eval.empty() ? "that data.eval_fraction selects from data.train" : "of data.eval");
  }
  throw UserError(
      fmt::format("the evaluation part has no rows: data.eval_fraction {}, "
                  "data.fraction {}, data.limit {} of {} rows",
                  config.data.eval_fraction, config.data.fraction, config.data.limit, rows.size()),
      "raise data.eval_fraction, data.fraction or data.limit, or give data.eval");
}

Json trained_config(const Json& config, const RunConfig& run) {
  Json made = config;
  if (!run.model.num_layers) return made;
  bool is_set = false;
  const std::vector<std::string>& keys = traits_of(config).layer_keys;
  for (const std::string& key : keys) {
    if (!made.find(key)) continue;
    made.set(key, Json(*run.model.num_layers));
    is_set = true;
  }
  if (!is_set) made.set(keys.front(), Json(*run.model.num_layers));
  if (const Json* types = made.find("layer_types"); types && types->is_array()) {
    Json::Array first = types->as_array();
    first.resize(std::min(first.size(), static_cast<size_t>(*run.model.num_layers)));
    made.set("layer_types", Json(std::move(first)));
  }
  return made;
}

}  // namespace weft
