// graph/ops/attention.h: attention of queries to keys and values, and its gradient.
//
// attention: q, k and v (one to three values), lengths, [source lengths], [positions], [source
// positions], [table], [rows] -> out, lse. attention_grad: q, k and v, lengths, out, dout, lse,
// then as attention -> gradients of q, k and v in the same layout, [of the table]. rows: for
// dropout.
#pragma once

#include "graph/builder.h"
#include "graph/head_shape.h"
#include "graph/op_rule.h"

namespace weft {

// The layout of q, k and v in the columns of their values (B, T or S, columns).
enum class QkvLayout {
  kPacked,       // one value: heads of q, of k, of v
  kInterleaved,  // one value: q, k and v of one head, then of the next (BLOOM)
  kQAndKv,       // q; heads of k, of v
  kSeparate,     // q; k; v
};
inline size_t num_values(QkvLayout layout) {
  return layout == QkvLayout::kSeparate ? 3 : layout == QkvLayout::kQAndKv ? 2 : 1;
}

// What is added to the scores by the distance of query and key (kernel/attention_bias.h).
enum class ScoreBias { kNone, kAlibi, kRelative };

struct AttentionAttr {
  HeadShape heads;
  float scale = 0;
  bool padding_attends = false;  // positions past the length attend, too
  // The longest row of the plan's memory, of queries and of keys; 0: this one's.
  int64_t longest = 0, longest_source = 0;
  double dropout = 0;  // > 0: the last input has the rows' numbers (B, 2), int64
  uint64_t dropout_seed = 0;
  int64_t dropout_site = 0;
  int64_t first_head = 0;  // of the model's heads, the first of this rank
  QkvLayout layout = QkvLayout::kPacked;
  bool has_source = false;  // keys have separate lengths (and positions)
  bool has_segments = false;
  bool causal = true;
  int64_t window = 0;  // causal: keys that a query sees at most, its own counted; 0: all
  ScoreBias bias = ScoreBias::kNone;
  int64_t model_heads = 0;   // of all ranks
  int64_t max_distance = 0;  // of the relative table
};
extern const OpRule kAttentionOp, kAttentionGradOp;

// The inputs of a node by role; Ref{} where absent. Positions and lengths of the source default to
// those of the queries.
struct AttentionInputs {
  std::vector<Ref> values;
  Ref lengths, out, dout, lse;
  Ref source_lengths, positions, source_positions, table, rows;
};
AttentionInputs attention_inputs(const Node& node);

// Limits of the kernels, which exec/ops/attention.cpp compares with theirs.
inline constexpr int64_t kMostRelativeBuckets = 128;  // on one side
inline constexpr int64_t kMostHeadsOfAlibi = 8191;

// Of attention's probabilities; site: the number of the attention (or dropout) in the model, since
// two with the same one draw the same mask; rows (B, 2): every row's epoch and its number in the
// epoch.
struct DropoutRule {
  double rate = 0;
  uint64_t seed = 0;
  int64_t site = 0;
  Ref rows = {};
};

// One call. Defaults: keys are the queries' own rows, all heads have the scale
// 1 / sqrt(head_dim), no dropout.
struct AttentionCall {
  QkvLayout layout = QkvLayout::kPacked;
  std::vector<Ref> values;
  HeadShape heads;
  Ref lengths;
  bool padding_attends = false;
  Ref positions = {};  // (B, T), from 0 in each segment: of packed rows; absent: a row is a segment
  Ref source_lengths = {}, source_positions = {};  // where keys have separate rows
  bool causal = true;
  int64_t window = 0;
  float scale = 0;
  ScoreBias bias = ScoreBias::kNone;
  Ref table = {};  // relative: (buckets, heads)
  int64_t max_distance = 0;
  DropoutRule dropout = {};
};

// For attention over a cache too. BugError where scale, window or bias cannot be.
void check_scores(const Builder& g, Op op, const AttentionCall& call);
float scale_or_usual(float scale, const HeadShape& h);  // 0: 1 / sqrt(head_dim)
// This rank's heads, where the columns of the values are cut. values: one or more of the layout's,
// from the first on. A cut value that holds heads of several kinds must be a product with a weight
// of each kind: of a single one a rank has a run of columns, which is not a share of each kind.
HeadShape heads_of_rank(Localizer* localizer, Op op, QkvLayout layout, const HeadShape& h,
                        const std::vector<Ref>& values);
// The table of a relative bias is cut like the heads of the values.
inline Placement table_placement(const Placement& p) { return p.is_cut(2) ? cut(1) : whole(); }

namespace ops {
Ref attention(Builder& g, const AttentionCall& call);
// Causal, over packed qkv.
Ref attention(Builder& g, Ref qkv, Ref lengths, Ref positions, HeadShape h,
              bool padding_attends = false, const DropoutRule& dropout = {});
}  // namespace ops
}  // namespace weft
