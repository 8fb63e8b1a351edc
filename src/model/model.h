// model/model.h: what every family provides: its parameters, and its code traced into a graph.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "graph/graph.h"
#include "model/inputs.h"
#include "tensor/dtype.h"

namespace weft {

// How a parameter starts when nothing is loaded: the family's own Hugging Face rule.
struct InitRule {
  enum class Kind { kNormal, kZeros, kOnes, kConstant } kind = Kind::kNormal;
  double std = 0;         // kNormal: standard deviation; kConstant: the value
  int64_t zero_row = -1;  // the padding row of an embedding
};

// How tensor parallelism may cut a parameter.
struct CutRule {
  int dim = -1;            // -1: every rank holds it whole
  int64_t unit = 1;        // cuts are at multiples of this (a head)
  bool is_uneven = false;  // parts may differ in size (the vocabulary)
  bool may_copy = false;   // ranks that read the same units hold copies (key/value heads)
  const char* what = "";   // its units, for messages: "attention heads"
  bool is_shared = false;  // one unit, of which every rank has a copy (shared_by_heads)
};
// A vector that all heads share (the weight of their norm): every rank has all of it, and the
// gradient is the sum over the ranks' heads.
inline CutRule shared_by_heads(int64_t elements) { return {0, elements, false, true, "", true}; }

// Where a parameter is in Hugging Face's files: a box of a stored tensor, which other parameters
// may share (q, k and v of one fused projection).
struct StoredAs {
  std::string name;  // empty: under the parameter's own name, with its shape
  Shape shape;       // of the stored tensor
  Shape begin;       // the parameter's first element in it
};

struct ParameterSpec {
  std::string name;  // keys its initial values
  Shape shape;
  InitRule init;
  CutRule cut;
  StoredAs stored = {};
};

struct TraceOptions {
  int64_t batch = 1, positions = 1;  // B, T
  Dtype compute = Dtype::kF32;
  int64_t max_positions = 0;         // generation: of the cache
  bool packed = false;               // loss: rows hold several segments
  bool learns_padding = false;       // loss: padding may be a label, and attends to its row
  bool drops = false;                // loss: for training, with the model's dropout
  uint64_t seed = 0;                 // of dropout
  int64_t source_positions = 0;      // loss, encode: S of an encoder-decoder
  int64_t max_source_positions = 0;  // generation: of the caches that the encoder fills
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const char* family() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_positions() const = 0;
  // What else than a shorter text helps where they do not suffice, for messages.
  virtual const char* way_to_more_positions() const;
  virtual double dropout() const = 0;  // effective in training; 0: none
  virtual std::vector<ParameterSpec> parameters() const = 0;

  // What trace_loss reads from a batch.
  virtual std::vector<InputSpec> inputs(const TraceOptions& options) const = 0;
  // Returns the losses (B, T).
  virtual Ref trace_loss(Graph* graph, const TraceOptions& options) const = 0;
  // Inputs ids, positions (B, T), starts, lengths, last (B); result logits (B, V) (tensor/names.h).
  // An encoder-decoder has source_lengths (B) too, and reads caches that trace_encode fills.
  virtual Ref trace_generate(Graph* graph, const TraceOptions& options) const = 0;
  // Encoder-decoders: the encoder, whose keys and values for every layer of the decoder go into
  // caches named names::kSourceCache and more. Inputs source_ids (B, S), source_lengths (B).
  virtual void trace_encode(Graph* graph, const TraceOptions& options) const;
  // The token before a target's first. Of encoder-decoders.
  virtual int32_t start_id() const;
  // Fills the constants of a traced graph (rope tables): data(name) is their memory.
  virtual void fill_constants(const Graph& graph,
                              const std::function<void*(const std::string&)>& data) const = 0;
};

struct Family;  // model/family.h

struct ModelOverrides {
  int64_t num_layers = 0;              // 0: as configured
  std::optional<double> dropout = {};  // of all sites; absent: as configured
};

// From config.json, by its family. UserError naming the known architectures, or the
// feature that is not built.
std::unique_ptr<Model> make_model(const Json& config, const ModelOverrides& overrides);
// The same for a folder's config.json, whose path errors name.
std::unique_ptr<Model> make_model(const Json& config, const ModelOverrides& overrides,
                                  const std::filesystem::path& folder);
// The same with other families than the known ones.
std::unique_ptr<Model> make_model(const Json& config, const ModelOverrides& overrides,
                                  std::span<const Family> families);

// Elements [begin, end) of a parameter's initial value, keyed by seed, name and element: any cut of
// the tensor yields the same elements.
void initial_values(const ParameterSpec& spec, uint64_t seed, int64_t begin, int64_t end,
                    float* out);
float initial_element(const ParameterSpec& spec, uint64_t seed, int64_t i);

// Marks parameters whose stored name a glob of `patterns` matches. UserError where one matches
// none.
void freeze_parameters(Graph* graph, const std::vector<ParameterSpec>& parameters,
                       const std::vector<std::string>& patterns);

int64_t count_parameters(const Model& model);

// Whether the model reads an input of that name from every batch, packed or not.
bool reads_input(const Model& model, std::string_view name);
// Whether the model reads a source in addition to its target: an encoder-decoder.
bool reads_source(const Model& model);

}  // namespace weft
