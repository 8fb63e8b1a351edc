// train/start_state.cpp: reads state.json back; counts rows where the end must be known.
#include "train/start_state.h"

#include <chrono>

#include "base/elapsed.h"
#include "base/log.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/list.h"
#include "train/convert_states.h"
#include "train/numerics.h"
#include "train/rank_agreement.h"
#include "train/same_model.h"
#include "train/same_optimizer.h"

namespace weft {
namespace {

void load_weights(const Session& session, Engine* engine) {
  if (session.config.model.init == "random") {
    engine->init_weights(static_cast<uint64_t>(session.config.seed));
  } else {
    engine->load_weights(session.folder);
  }
}

// Earlier versions cut a tokenizer's own tokens with the text, and stored no rule of the split.
void warn_of_other_cuts(const Json& stored, const Session& session) {
  const DataConfig& data = session.config.data;
  const Tokenizer& tokenizer = *session.tokenizer;
  const bool is_affected =
      session.kind() == ModelKind::kCausal && data.layout != "pack" && data.messages.empty() &&
      (!tokenizer.ids_after().empty() || (!data.source.empty() && !tokenizer.ids_before().empty()));
  if (stored.find("eval_split") || !is_affected) return;
  log_warning(
      "the checkpoint is from an earlier weft, which also cut the tokens that the tokenizer adds "
      "to a row: rows longer than data.seq_length have other tokens from this step on");
}

StreamState position_of(const Json& state) {
  StreamState position{state.at("epoch").as_int(), state.at("position").as_int()};
  if (const Json* part = state.find("part")) position.part = part->as_int();
  if (const Json* files = state.find("data_files"))
    position.files = static_cast<uint64_t>(files->as_int());
  position.splits_by_row = splits_by_row(state);
  return position;
}

// Nothing where checkpoint.best has another measure since: the next evaluation is its first.
void load_best(const Json& stored, const std::string& measure, TrainState* state) {
  const Json* best = stored.find("best_" + measure);
  if (!best || !best->is_number()) return;
  state->best = best->as_number();
  const Json* loss = stored.find(kLossOfBest);
  if (measure != "eval_loss" && loss && loss->is_number()) state->best_loss = loss->as_number();
  const Json* without = stored.find("evals_without_progress");
  if (without && without->is_int()) state->evals_without_progress = without->as_int();
}

// A checkpoint of another run, or best/, does not count: this run saves its own.
bool is_own_step(const RunStart& start, int64_t step) {
  const std::filesystem::path own = checkpoint_path(start.dir, step);
  if (path_kind(own) == PathKind::kNothing) return false;
  std::error_code refused;
  const bool is_same = std::filesystem::equivalent(*start.checkpoint, own, refused);
  if (refused) throw_refused("look at", own, refused.value());
  return is_same;
}

}  // namespace

// Earlier versions of weft had only the old rule, and did not store it.
bool splits_by_row(const Json& state) {
  const Json* rule = state.find("eval_split");
  return !rule || rule->as_string() == "by_row";
}

LoadedStart load_start(const RunStart& start, const Session& session, const Layout& layout,
                       const Json& numerics, bool converts, Engine* engine, TrainState* state) {
  if (!start.checkpoint) {
    load_weights(session, engine);
    return {};
  }
  check_same_model(*start.checkpoint, session);
  check_same_tokenizer(*start.checkpoint, session);
  const CheckpointReader reader(*start.checkpoint);
  check_same_optimizer(reader, session.config.train.optimizer, engine->executor().plan().graph);
  LoadedStart loaded;
  const auto began = std::chrono::steady_clock::now();
  engine->load_checkpoint(reader, converts);
  if (converts) loaded.conversion = describe_conversion(reader.tensors(), session.config);
  loaded.bytes = reader.bytes_read();
  loaded.seconds = seconds_since(began);
  const Json& stored = reader.state();
  check_exact_constants(stored, layout);
  warn_of_other_numerics(stored, numerics);
  warn_of_other_cuts(stored, session);
  read_state(stored, session.config, !start.is_of_other_run, engine, state);
  if (is_own_step(start, state->step)) loaded.saved_step = state->step;
  return loaded;
}

void read_state(const Json& stored, const RunConfig& config, bool with_best, Engine* engine,
                TrainState* state) {
  state->step = stored.at("step").as_int();
  state->updates = stored.at("updates").as_int();
  state->scaling.load(stored, engine);
  state->position = position_of(stored);
  if (with_best) load_best(stored, config.checkpoint.best, state);
}

// Packed rows are always counted: their number cannot be predicted.
RunEnd find_end(const RunConfig& c, BatchStream& stream, Ranks& ranks) {
  constexpr int64_t kCheapToCount = 20000;
  RunEnd end;
  const bool packs = c.data.layout == "pack", cheap = stream.num_raw_rows() <= kCheapToCount;
  if (ranks.rank() == 0 && packs && (cheap || !c.train.steps))
    end.pack_size = stream.measure_pack();
  if (c.train.steps) {
    end.total = *c.train.steps;
  } else if (packs || cheap || schedule_needs_total(c.train.schedule)) {
    end.total = agree_on_number(ranks, [&] { return stream.count_steps(c.train.epochs); });
  }
  return end;
}

void require_targets(const RunConfig& c, const StreamState& from, int64_t num_steps,
                     BatchStream& stream) {
  const int64_t batch = c.train.global_batch;
  const bool is_counted = c.data.layout != "pack" && num_steps < kNoEnd / batch;
  stream.require_targets(from, is_counted ? num_steps * batch : kNoEnd);
}

}  // namespace weft
