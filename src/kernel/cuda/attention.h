// kernel/cuda/attention.h: the two implementations of attention on a GPU, cuDNN and the built-in
// kernel.
//
// cuDNN is the fast one: bf16 and fp16. The built-in kernel handles everything: fp32, any head dim
// up to 256, rows of any length, dropout. attention.cpp chooses. Workspaces suffice for either,
// since the GPU is not known when they are computed.
#pragma once

#include <string>

#include "kernel/kernels.h"

namespace weft::cuda {

// For tests and measurements; set before the first call.
struct AttentionSettings {
  bool cudnn = true;          // false: the built-in kernel handles all
  bool padding_mask = false;  // true: cuDNN masks padding in every form, needed or not
  bool deterministic = true;  // of cuDNN's backward: two runs have the same bits
};
AttentionSettings& attention_settings();

// Whether this machine has the library (only in builds with cuDNN); if not, why (null: not needed).
bool find_cudnn(std::string* why_none);
// Whether cuDNN was built in, is installed, and supports these on the current GPU: forward and
// backward of a shape, or neither. The first call of a shape queries cuDNN
// (kernel/gpu/attention_backend.h).
bool cudnn_supports(const Context&, const AttentionArgs&);
bool cudnn_supports(const Context&, const AttentionBackwardArgs&);
void cudnn_attention(const Context&, const AttentionArgs&);
void cudnn_attention_backward(const Context&, const AttentionBackwardArgs&);
size_t cudnn_attention_workspace(const AttentionArgs&);
size_t cudnn_attention_backward_workspace(const AttentionBackwardArgs&);

// attention_padding.cu. Queries, or keys: H heads of T positions, of which those below lengths[b]
// count, and none in rows whose length on the other side is 0.
struct PaddedHeads {
  int64_t B, T, H, D;
  Dtype dtype;
  const int32_t *lengths, *other;  // (B)
};
PaddedHeads padded_queries(const AttentionOperands&);
PaddedHeads padded_keys(const AttentionOperands&);
// Positions that do not count become zero, and so does their lse where there is one. D and strides
// are whole 4-byte words.
void zero_padding(const Context&, const PaddedHeads&, const HeadsOut&, float* lse);
// to = lse, except of queries that do not count: there it is so large that exp(score - lse) is
// zero.
void raise_padding_lse(const Context&, const PaddedHeads&, const float* lse, float* to);

// attention_segments.cu. mask (B, T, pitch), to be added to the scores: 0 for keys from the begin
// of the query's segment on, which is positions (B, T) before it; very low for those before.
inline int64_t segment_mask_pitch(int64_t T) { return (T + 63) / 64 * 64; }
void segment_mask(const Context&, int64_t B, int64_t T, Dtype, const int32_t* positions,
                  void* mask);

// attention_bias.cu. lines (H, bias_line_floats): the bias by distance, from that of the last query
// and the first key on, and kBiasReach more on both ends: blocks of queries and keys reach past
// the last of them.
inline constexpr int kBiasReach = 256;
int64_t bias_line_floats(const AttentionOperands&);
size_t bias_lines_bytes(const AttentionOperands&);  // 0 where there is no bias
// The buckets of the same distances, behind the lines; only of a relative table.
const uint8_t* bucket_line(const AttentionOperands&, const float* lines);
void make_bias_lines(const Context&, const AttentionOperands&, float* lines);
// Sums of the table's gradient of a row and head, at most: one per warp of 16 queries, of which a
// block has four.
inline int64_t num_table_parts(const AttentionOperands& args) { return (args.T + 63) / 64 * 4; }
// dtable (+)= the sums of `parts` parts of each row and head, partials (B, H, parts, buckets), over
// the scale: parts in a fixed order, then rows.
void add_bias_partials(const Context&, const AttentionBackwardArgs&, int64_t parts,
                       const float* partials);

void builtin_attention(const Context&, const AttentionArgs&);
size_t builtin_attention_workspace(const AttentionArgs&);
void builtin_attention_backward(const Context&, const AttentionBackwardArgs&);
size_t builtin_attention_backward_workspace(const AttentionBackwardArgs&);

}  // namespace weft::cuda
