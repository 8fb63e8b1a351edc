// config/session.h: what a command needs from a run file: model, tokenizer and rows, opened and
// checked.
#pragma once

#include <memory>
#include <optional>

#include "config/run_config.h"
#include "data/batches.h"
#include "data/eval_split.h"
#include "io/hf_folder.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace weft {

struct Session {
  explicit Session(const RunConfig& run);

  const RunConfig& config;
  HfFolder folder;
  Json model_config;  // of the folder (model/head_in_files.h)
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  bool splits_by_row = false;  // the data.eval_fraction rule of older runs (EvalSplit)
  Dtype final_dtype;           // for final/: that of the source folder; fp32 for random weights

  ModelKind kind() const;
  std::unique_ptr<RowSource> open_train_rows() const;
  // The rows of data.eval, or those of data.train from which eval_fraction selects.
  std::unique_ptr<RowSource> open_eval_rows() const;
  StreamOptions train_stream() const;
  StreamOptions eval_stream() const;  // once through, in file order
  // Whether row i of open_eval_rows(), within fraction and limit, belongs to the evaluation part.
  EvalSplit eval_split(const RowSource& rows) const;
  bool is_in_eval_part(const EvalSplit& split, int64_t i) const;
  // UserError where the evaluation part has no rows, or none with a target.
  void check_eval_rows(const RowSource& rows) const;

 private:
  std::unique_ptr<RowSource> open_part(const std::vector<std::string>& paths,
                                       const char* what) const;
};

// The model of model.path as modified by the run file: errors name the folder's config.json.
std::unique_ptr<Model> open_model(const RunConfig& config, const HfFolder& folder);

// UserError where data.seq_length exceeds the model's positions.
void check_positions(const RunConfig& config, const Model& model);

// config.json of the trained model: with fewer layers where model.num_layers is set.
Json trained_config(const Json& config, const RunConfig& run);

}  // namespace weft
