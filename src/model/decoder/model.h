// model/decoder/model.h: a decoder-only transformer of the Llama kind as single-device code.
#pragma once

#include "model/decoder/config.h"
#include "model/model.h"

namespace weft {

class DecoderModel : public Model {
 public:
  explicit DecoderModel(DecoderConfig config) : config_(std::move(config)) {}
  const char* family() const override { return config_.family.c_str(); }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.max_position_embeddings; }
  double dropout() const override { return config_.dropout; }
  std::vector<ParameterSpec> parameters() const override;
  std::vector<InputSpec> inputs(const TraceOptions& options) const override;
  Ref trace_loss(Graph* graph, const TraceOptions& options) const override;
  Ref trace_generate(Graph* graph, const TraceOptions& options) const override;
  void fill_constants(const Graph& graph,
                      const std::function<void*(const std::string&)>& data) const override;

 private:
  DecoderConfig config_;
};

// A family of this kind: its configuration with the run file's overrides.
std::unique_ptr<Model> make_decoder(DecoderConfig config, const ModelOverrides& overrides);

// How a parameter of that name may be cut (model/decoder/placement.cpp).
CutRule decoder_cut(const DecoderConfig& config, const std::string& name);

}  // namespace weft
