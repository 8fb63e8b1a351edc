// tests/dist/fused_decoder.h: a family whose files hold q, k and v as one tensor, gate and up as
// another (as Phi-3's do); else it is Llama.
#pragma once

#include "model/family.h"
#include "tests/dist/plain_traits.h"

namespace weft::testing {

class FusedDecoder : public Model {
 public:
  explicit FusedDecoder(std::unique_ptr<Model> plain) : plain_(std::move(plain)) {}
  const char* family() const override { return "fused"; }
  int64_t vocab_size() const override { return plain_->vocab_size(); }
  int64_t max_positions() const override { return plain_->max_positions(); }
  double dropout() const override { return plain_->dropout(); }
  std::vector<InputSpec> inputs(const TraceOptions& o) const override { return plain_->inputs(o); }
  Ref trace_loss(Graph* graph, const TraceOptions& o) const override {
    return plain_->trace_loss(graph, o);
  }
  Ref trace_generate(Graph* graph, const TraceOptions& o) const override {
    return plain_->trace_generate(graph, o);
  }
  void fill_constants(const Graph& graph,
                      const std::function<void*(const std::string&)>& data) const override {
    plain_->fill_constants(graph, data);
  }

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> all = plain_->parameters();
    fuse({"q_proj", "k_proj", "v_proj"}, "qkv_proj", &all);
    fuse({"gate_proj", "up_proj"}, "gate_up_proj", &all);
    return all;
  }

 private:
  // Parts follow each other in the list, layer by layer.
  static void fuse(const std::vector<std::string>& parts, const std::string& fused,
                   std::vector<ParameterSpec>* all) {
    for (size_t i = 0; i < all->size(); ++i) {
      const size_t at = (*all)[i].name.find(parts[0] + ".weight");
      if (at == std::string::npos) continue;
      int64_t rows = 0;
      for (size_t k = 0; k < parts.size(); ++k) {
        ParameterSpec& p = (*all)[i + k];
        p.stored = {p.name.substr(0, at) + fused + ".weight", {0, p.shape[1]}, {rows, 0}};
        rows += p.shape[0];
      }
      for (size_t k = 0; k < parts.size(); ++k) (*all)[i + k].stored.shape[0] = rows;
    }
  }

  std::unique_ptr<Model> plain_;
};

inline std::unique_ptr<Model> make_fused(const Json& config, const ModelOverrides& overrides) {
  Json plain = config;
  plain.set("architectures", Json::Array{"LlamaForCausalLM"});
  return std::make_unique<FusedDecoder>(make_model(plain, overrides));
}

inline const Family kFusedFamilies[] = {{"FusedForCausalLM", "fused", make_fused, plain_traits}};

}  // namespace weft::testing
