// train/saver.h: the state of a run on the disk: a checkpoint of a step, the best, old ones gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "data/batches.h"
#include "track/run_files.h"
#include "train/engine.h"
#include "train/run_config.h"
#include "train/session.h"

namespace weft {

struct TrainState {
  int64_t step = 0, updates = 0;
  StreamState position;
  std::optional<double> best_eval;
};

// A full or failing disk does not end a run: it is told, in the log and where there is room among
// the events, and tried again at the next checkpoint. A BugError is not caught.
class Saver {
 public:
  Saver(const RunFile& file, const Session& session, Engine& engine, std::filesystem::path dir,
        MetricsWriter& metrics, EventWriter& events)
      : file_(file),
        session_(session),
        engine_(engine),
        dir_(std::move(dir)),
        metrics_(metrics),
        events_(events) {}

  // Whether it was written. The metrics up to the step are on the disk before it is committed.
  bool save_step(const TrainState& state);  // step-N; then older ones go, as checkpoint.keep says
  bool save_best(const TrainState& state);

 private:
  bool write(const std::filesystem::path& folder, const TrainState& state);
  Json to_json(const TrainState& state) const;
  // Runs fn; a failure of the system is told as `what` and returns false.
  bool guarded(const std::string& what, int64_t step, const std::function<void()>& fn);
  void tell(std::string_view event, const Json::Object& more);

  const RunFile& file_;
  const Session& session_;
  Engine& engine_;
  std::filesystem::path dir_;
  MetricsWriter& metrics_;
  EventWriter& events_;
};

}  // namespace weft
