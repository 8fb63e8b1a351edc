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
  kResult,      // read by the caller after the step: loss, gradient norm, loss scale
};

// Which elements of which tensor of the model a value holds: a box of it, or a flat range of that
// box in row-major order (the ZeRO cut).
struct Portion {
  std::string name;  // Hugging Face's; states have their suffix (#m, #v, #master)
  Shape shape;       // of the whole tensor
  Shape offset, extent;
  int64_t begin = 0, end = 0;  // within the box
};

struct Value {
  std::string name;
  Shape shape;
  Dtype dtype;
  ValueKind kind;
  Ref parameter = {};   // of a gradient or state: the parameter it belongs to
  bool frozen = false;  // of a parameter: no gradient, no state
  // Of parameters, gradients and states that are not the whole tensor of their name.
  std::optional<Portion> portion = {};
  // Of values that lie inside another one (a bucket): which, and at which element.
  Ref base = {};
  int64_t base_offset = 0;
  bool is_bucket = false;  // holds others, and is no tensor of the model itself
  // Of parameters and states: this rank writes it into checkpoints; the first of several copies.
  bool is_saved = true;
  // Of gradients: this rank counts it in the norm. False on all but one of the ranks that hold the
  // same elements and add up their squares.
  bool is_counted = true;
  // Of parameters: so many neighbouring ranks of the tensor axis hold it. Of gradients: so many of
  // them have an addend each, of which the optimizer makes the sum.
  int copies = 1;
  // Of copies that some neighbours share and some do not (parallel/pieces.h): their group, 0 or 1.
  int copy_group = -1;
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
  kAllReduce,      // over a mesh axis; a bias may follow the sum, and a rounding
  kReduceScatter,  // over the data-parallel axis: this rank's shard of the sum
  kAllGather,      // over the data-parallel axis: shards -> the whole bucket
  kAllToAll,       // over the data-parallel axis: leaves of a bucket to the owners of its shards
  kAccumulate,     // a leaf added to the accumulators of its gradient (exact mode)
};
inline constexpr int kNumOps = static_cast<int>(Op::kAccumulate) + 1;

enum class Axis { kTensor, kData };

// What a node needs beyond its values. Each op reads only its own fields.
struct Attributes {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // rope, attention
  float scale = 0;                                // attention
  bool padding_attends = false;                   // attention: positions past the length, too
  int64_t longest = 0;  // attention: tokens of the longest row that the plan's memory is for
  // Attention with dropout (> 0): the last input has the rows' numbers (B, 2), int64.
  double dropout = 0;
  uint64_t dropout_seed = 0;
  int64_t dropout_site = 0;
  int64_t first_head = 0;     // attention: of the model's heads, the first of this rank
  float eps = 0;              // norms
  int32_t padding_id = -1;    // embedding gradient
  int parts = 1;              // linear: how many weights are stacked in this one product
  bool has_bias = false;      // linear: a bias follows each weight
  bool has_residual = false;  // rmsnorm: the second input is added first
  bool has_dsum = false;      // rmsnorm gradient: something else flows into the sum
  int64_t column = 0;         // weight and bias gradients: first column of dy that belongs to them
  int64_t chunk_rows = 0;     // head: tokens whose logits exist at one time
  bool first_writer = true;   // writers of a parameter's gradient
  bool decay = true;          // adamw
  int leaves = 0;      // linear gradient: parts form so many leaves (exact mode), added in a tree
  int row_pieces = 0;  // linear ops: the weight is so many pieces along its second dim
  int64_t vocab_begin = 0;    // embedding, head: first row of the table that this rank holds
  Axis axis = Axis::kTensor;  // collectives
  int copies = 0;             // all_reduce over the tensor axis: only over so many neighbours
  int copy_group = 0;         // of the two groups of such neighbours that a rank may belong to
  bool beside = false;        // collectives: on the communication lane, beside the computation
  int slots = 0;  // writers of gradients in exact mode: accumulators (parallel/data_parallel.h)
  int64_t slot_stride = 0;                    // elements from one accumulator to the next
  int64_t group_leaves = 1;                   // leaves that are added in order before the tree
  bool last_pass_only = false;                // collectives of gradients that all passes add to
  bool sum_tensor = false, sum_data = false;  // norm: over which axes the squares are added up
};

struct Node {
  Op op;
  std::vector<Ref> inputs, outputs;  // an absent optional output is Ref{}
  Attributes attr;
  int layer = -1;  // of the model, for dumps and buckets; -1: embedding, head, optimizer
};

// What the optimizer updates: a parameter, or this rank's part of one, with its gradient.
struct Update {
  Ref parameter, gradient;
};

// The two lists of a step: `pass` runs once a micro-batch, `finish` once after the last pass.
struct Graph {
  std::vector<Value> values;
  std::vector<Node> pass, finish;
  std::vector<Update> updates;

  const Value& operator[](Ref r) const { return values[static_cast<size_t>(r.id)]; }
  Value& operator[](Ref r) { return values[static_cast<size_t>(r.id)]; }
  Ref add(Value v);
  std::vector<Ref> of_kind(ValueKind kind) const;
  std::optional<Ref> find(const std::string& name) const;
  // The value whose memory r lies in (itself, unless it is a view), and at which byte of it.
  struct Storage {
    Ref root;
    int64_t offset_bytes = 0;
  };
  Storage storage_of(Ref r) const;
};

// The tensor elements that a parameter, gradient or state holds: its portion, or all of its name.
Portion portion_of(const Value& v);

bool is_collective(Op op);
const char* op_name(Op op);
const char* kind_name(ValueKind kind);
int64_t value_bytes(const Value& v);
// FLOPs of the products of a node (a multiply and an add count two).
double node_flops(const Graph& graph, const Node& node);

}  // namespace weft
