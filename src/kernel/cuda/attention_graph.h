// kernel/cuda/attention_graph.h: cuDNN's graphs of attention, one per shape.
//
// A graph is built at the first call of its shape (that may take a second and allocates, so not
// while a stream is being captured) and kept for the life of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "kernel/gpu/attention_backend.h"
#include "kernel/kernels.h"

namespace weft::cuda {

// Elements from one to the next of a tensor of heads (kernel/attention_args.h).
struct HeadStrides {
  int64_t row, position, head;
};

// What makes one graph differ from another. Strides are those of the whole tensors, of which a
// piece may be computed; gradients have those of q, k and v.
struct AttentionShape {
  int64_t B, T, S, H, G, D;
  HeadStrides q, k, v, out;
  float scale;
  bool causal;
  int64_t window;  // 0: none
  bool backward, padding_mask, deterministic, segments;
  int device;
  Dtype dtype;  // bf16 or fp16

  AttentionBackend::Key key() const;
  std::string text() const;
};

// Tensors of the graphs: q, k, v and their gradients, out and dout; lengths (B) of queries and of
// keys; mask, of segments (B, T, segment_mask_pitch(T)).
enum AttentionTensor : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kLengthQ,
  kLengthKv,
  kMask
};
using AttentionPointers = std::unordered_map<int64_t, void*>;

// Builds the graph. Empty, or what cuDNN rejects and why; also where it needs more workspace than
// is available.
std::string attention_refusal(const Context&, const AttentionShape&, size_t planned_bytes);
// Queues a graph that was accepted. The workspace extends to the end of the context's.
void run_attention(const Context&, const AttentionShape&, AttentionPointers, std::byte* workspace);

}  // namespace weft::cuda
