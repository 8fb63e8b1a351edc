// graph/graph.h: a step as values and nodes. No memory, no kernels: shapes and rules only.
//
// A value is written by exactly one node, except a parameter's gradient, which every use of the
// parameter adds to: the first writer of a pass stores (on the first pass) and the others add.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

struct Ref {
  int id = -1;
  explicit operator bool() const { return id >= 0; }
  bool operator==(const Ref&) const = default;
};

enum class ValueKind {
  kInput,       // filled by the caller before every pass: ids, targets, lengths
  kConstant,    // filled once: rope tables
  kParameter,   // lives as long as the run
  kGradient,    // of a parameter; lives over all passes of a step
  kState,       // optimizer state or master weights; lives as long as the run
  kCache,       // keys and values of earlier positions, for generation
  kActivation,  // lives from its node to its last reader, within one list
  kResult,      // read by the caller after the step: loss, gradient norm
};

struct Value {
  std::string name;
  Shape shape;
  Dtype dtype;
  ValueKind kind;
  Ref parameter = {};   // of a gradient or state: the parameter it belongs to
  bool frozen = false;  // of a parameter: no gradient, no state
};

enum class Op {
  kEmbedding,
  kLinear,
  kRmsNorm,
  kRope,
  kAttention,
  kCachedAttention,
  kSwiglu,
  kHeadLoss,    // losses only
  kHeadLogits,  // the logits of one position a row, for generation
  kHeadLossGrad,
  kLinearDx,
  kLinearDw,
  kBiasGrad,
  kEmbeddingGrad,
  kRmsNormApply,  // the normalised value again, from the kept statistics
  kRmsNormGrad,
  kRopeInverse,
  kAttentionGrad,
  kSwigluGrad,
  kAdd,
  kLossSum,
  kSquares,
  kNorm,
  kAdamw,
};

// What a node needs beyond its values. Each op reads only its own fields.
struct Attributes {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // rope, attention
  float scale = 0;                                // attention
  float eps = 0;                                  // norms
  int32_t padding_id = -1;                        // embedding gradient
  int parts = 1;              // linear: how many weights are stacked in this one product
  bool has_bias = false;      // linear: a bias follows each weight
  bool has_residual = false;  // rmsnorm: the second input is added first
  bool has_dsum = false;      // rmsnorm gradient: something else flows into the sum
  int64_t column = 0;         // weight and bias gradients: first column of dy that belongs to them
  int64_t chunk_rows = 0;     // head: tokens whose logits exist at one time
  bool first_writer = true;   // writers of a parameter's gradient
  bool decay = true;          // adamw
};

struct Node {
  Op op;
  std::vector<Ref> inputs, outputs;  // an absent optional output is Ref{}
  Attributes attr;
  int layer = -1;  // of the model, for dumps and buckets; -1: embedding, head, optimizer
};

// The two lists of a step: `pass` runs once a micro-batch, `finish` once after the last pass.
struct Graph {
  std::vector<Value> values;
  std::vector<Node> pass, finish;

  const Value& operator[](Ref r) const { return values[static_cast<size_t>(r.id)]; }
  Value& operator[](Ref r) { return values[static_cast<size_t>(r.id)]; }
  Ref add(Value v);
  std::vector<Ref> of_kind(ValueKind kind) const;
  std::optional<Ref> find(const std::string& name) const;
};

const char* op_name(Op op);
const char* kind_name(ValueKind kind);
int64_t value_bytes(const Value& v);
// FLOPs of the products of a node (a multiply and an add count two).
double node_flops(const Graph& graph, const Node& node);

}  // namespace weft
