// cmd/inspect_batches.cpp: the first batches of a run file, as training would see them.
#include "base/error.h"
#include "cmd/inspect.h"
#include "cmd/labeled_text.h"
#include "cmd/text_input.h"
#include "config/run_config.h"
#include "data/batches.h"
#include "io/hf_folder.h"
#include "model/config_fields.h"
#include "tensor/names.h"

namespace weft {
namespace {

Json list_of(std::span<const int32_t> values, int64_t row, int64_t length) {
  Json::Array list;
  for (int64_t i = 0; i < length; ++i) {
    list.push_back(Json(values[static_cast<size_t>(row * length + i)]));
  }
  return list;
}

std::span<const int32_t> part_of(std::span<const int32_t> values, int64_t begin, int64_t end) {
  return values.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

// Calls fn(begin, end) for every segment of the row that begins at `first`: runs of one number.
template <typename Fn>
void each_segment(std::span<const int32_t> segments, int64_t first, int64_t length, const Fn& fn) {
  const auto number = [&](int64_t i) { return segments[static_cast<size_t>(first + i)]; };
  for (int64_t begin = 0, end = 0; begin < length; begin = end) {
    while (end < length && number(end) == number(begin)) ++end;
    if (number(begin) != 0) fn(first + begin, first + end);
  }
}

// The text of positions [begin, end). A decoder's labels are its targets; in other models a token
// is a label where the previous position has it as its target.
std::string text_of(const Batch& batch, const Tokenizer& tokenizer, int64_t begin, int64_t end) {
  if (batch.padded.source > 0) {
    return labeled_text(tokenizer, part_of(batch.values(names::kTargets), begin, end),
                        [](size_t) { return true; });
  }
  const auto targets = part_of(batch.values(names::kTargets), begin, end);
  return labeled_text(tokenizer, part_of(batch.values(names::kIds), begin, end),
                      [&](size_t t) { return t > 0 && targets[t - 1] != -1; });
}

// "text" and, for an encoder-decoder, "source_text"; for a packed row "texts" and "source_texts",
// one per segment.
void set_texts(const Batch& batch, const Tokenizer& tokenizer, int64_t b, Json& row) {
  const auto at = static_cast<size_t>(b);
  const auto [T, S] = batch.padded;
  const auto source = [&](int64_t begin, int64_t end) {
    return labeled_text(tokenizer, part_of(batch.values(names::kSourceIds), begin, end),
                        [](size_t) { return false; });
  };
  if (!batch.find(names::kSegments)) {
    if (S > 0)
      row.set("source_text", source(b * S, b * S + batch.values(names::kSourceLengths)[at]));
    row.set("text", text_of(batch, tokenizer, b * T, b * T + batch.values(names::kLengths)[at]));
    return;
  }
  Json::Array texts, sources;
  each_segment(batch.values(names::kSegments), b * T, T, [&](int64_t begin, int64_t end) {
    texts.push_back(Json(text_of(batch, tokenizer, begin, end)));
  });
  if (S > 0) {
    each_segment(batch.values(names::kSourceSegments), b * S, S,
                 [&](int64_t begin, int64_t end) { sources.push_back(Json(source(begin, end))); });
    row.set("source_texts", std::move(sources));
  }
  row.set("texts", std::move(texts));
}

Json rows_of(const Batch& batch, const Tokenizer& tokenizer) {
  Json::Array rows;
  for (int64_t b = 0; b < batch.num_rows; ++b) {
    Json row;
    set_texts(batch, tokenizer, b, row);
    const auto list = [&](const char* key, const char* name, int64_t length) {
      if (batch.find(name)) row.set(key, list_of(batch.values(name), b, length));
    };
    const auto number = [&](const char* key, const char* name) {
      if (batch.find(name)) row.set(key, batch.values(name)[static_cast<size_t>(b)]);
    };
    const auto [T, S] = batch.padded;
    list("ids", names::kIds, T);
    list("targets", names::kTargets, T);
    number("length", names::kLengths);
    list("segments", names::kSegments, T);
    list("position_ids", names::kPositions, T);
    list("source_ids", names::kSourceIds, S);
    number("source_length", names::kSourceLengths);
    list("source_segments", names::kSourceSegments, S);
    list("source_position_ids", names::kSourcePositions, S);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json numbers_of(const DataCounters& counters) {
  constexpr const char* kNames[] = {
      "rows",       "dropped",        "truncated", "sources_cut", "targets_cut", "split",  "nulls",
      "unanswered", "without_target", "repaired",  "incomplete",  "tokens",      "padding"};
  static_assert(std::size(kNames) == std::size(kDataCounts));
  Json out;
  for (size_t i = 0; i < std::size(kNames); ++i) out.set(kNames[i], counters.*kDataCounts[i]);
  return out;
}

}  // namespace

// Needs the model's config.json, not its weights, and accepts values that are not built: works for
// runs that cannot be trained yet.
Json inspect_batches(const std::string& path, const InspectRows& inspect) {
  const RunFile file(path, inspect.sets, RunFile::Use::kLook);
  file.log_replaced();
  const RunConfig& c = file.config();
  const HfFolder folder(resolve_model_path(c.model.path));
  const Json& config = folder.config();
  const auto tokenizer =
      open_tokenizer(c.data.tokenizer == "auto" ? folder.path().string() : c.data.tokenizer);
  StreamOptions options;
  options.seed = static_cast<uint64_t>(c.seed);
  options.global_batch = c.train.global_batch;
  options.part = c.data.eval_fraction > 0 ? Part::kTrain : Part::kAll;
  const Json* answers = config.find("is_encoder_decoder");
  if (answers && answers->is_bool() && answers->as_bool()) {
    options.kind = ModelKind::kEncoderDecoder;
    options.decoder_start_id = decoder_start_id(config);
  }
  const auto rows = open_rows_for(c.data, c.data.train, "data.train");
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
    one.set("rows", rows_of(batch, *tokenizer));
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
