// cmd/inspect_batches.cpp: the first batches of a run file, as its training would be fed.
#include "base/error.h"
#include "cmd/inspect.h"
#include "cmd/text_input.h"
#include "data/batches.h"
#include "io/hf_folder.h"
#include "train/run_config.h"

namespace weft {
namespace {

Json list_of(const std::vector<int32_t>& values, int64_t row, int64_t length) {
  Json::Array list;
  for (int64_t i = 0; i < length; ++i) {
    list.push_back(Json(values[static_cast<size_t>(row * length + i)]));
  }
  return list;
}

Json rows_of(const Batch& batch) {
  Json::Array rows;
  for (int64_t b = 0; b < batch.num_rows; ++b) {
    Json row;
    row.set("ids", list_of(batch.ids, b, batch.seq_length));
    row.set("targets", list_of(batch.targets, b, batch.seq_length));
    row.set("length", batch.lengths[static_cast<size_t>(b)]);
    if (!batch.segments.empty()) {
      row.set("segments", list_of(batch.segments, b, batch.seq_length));
      row.set("position_ids", list_of(batch.position_ids, b, batch.seq_length));
    }
    if (!batch.source_ids.empty()) {
      row.set("source_ids", list_of(batch.source_ids, b, batch.source_length));
      row.set("source_length", batch.source_lengths[static_cast<size_t>(b)]);
    }
    if (!batch.source_segments.empty()) {
      row.set("source_segments", list_of(batch.source_segments, b, batch.source_length));
      row.set("source_position_ids", list_of(batch.source_position_ids, b, batch.source_length));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json numbers_of(const DataCounters& counters) {
  constexpr const char* kNames[] = {"rows",       "dropped",  "truncated",  "split",  "nulls",
                                    "unanswered", "repaired", "incomplete", "tokens", "padding"};
  static_assert(std::size(kNames) == std::size(kDataCounts));
  Json out;
  for (size_t i = 0; i < std::size(kNames); ++i) out.set(kNames[i], counters.*kDataCounts[i]);
  return out;
}

}  // namespace

// Needs the model's config.json, not its weights, and takes what training refuses because it is
// not built: also of runs that cannot be trained yet.
Json inspect_batches(const std::string& path, const InspectRows& inspect) {
  const RunFile file(path, inspect.sets, RunFile::Use::kLook);
  const RunConfig& c = file.config();
  const std::filesystem::path folder = resolve_model_path(c.model.path);
  const Json config = HfFolder(folder).config();
  const auto tokenizer =
      open_tokenizer(c.data.tokenizer == "auto" ? folder.string() : c.data.tokenizer);
  StreamOptions options;
  options.seed = static_cast<uint64_t>(c.seed);
  options.global_batch = c.train.global_batch;
  options.part = c.data.eval_fraction > 0 ? Part::kTrain : Part::kAll;
  const Json* answers = config.find("is_encoder_decoder");
  if (answers && answers->is_bool() && answers->as_bool()) {
    options.kind = ModelKind::kEncoderDecoder;
    if (const Json* start = config.find("decoder_start_token_id"); start && start->is_int()) {
      options.decoder_start_id = static_cast<int32_t>(start->as_int());
    }
  }
  const auto rows = open_rows(c.data.train, c.data.format, "data.train", columns_used(c.data));
  BatchStream stream(c.data, *rows, *tokenizer, options);
  Json::Array batches;
  Batch batch;
  for (int64_t i = 0; i < inspect.num_batches; ++i) {
    stream.next(batch);
    Json one;
    one.set("epoch", batch.epoch);
    one.set("target_tokens", batch.target_tokens);
    one.set("tokens", batch.tokens);
    one.set("positions", batch.positions);
    one.set("rows", rows_of(batch));
    batches.push_back(std::move(one));
  }
  Json out;
  out.set("kind", "run file");
  out.set("path", path);
  if (!file.not_built().empty()) {
    Json::Array waits;
    for (const std::string& key : file.not_built()) waits.push_back(Json(key));
    out.set("not_built", std::move(waits));
  }
  out.set("rows", stream.num_raw_rows());
  out.set("tokenizer", tokenizer->describe());
  out.set("counted", stream.counters().describe());
  out.set("counts", numbers_of(stream.counters()));
  out.set("batches", std::move(batches));
  return out;
}

}  // namespace weft
