// exec/head.h: the language-model head fused with cross entropy, a chunk of tokens at a time.
#pragma once

#include "exec/node_args.h"

namespace weft {

// For each chunk of tokens that have a target: logits, loss, and (with_gradient) their gradient in
// place, then dx and dweight; the logits of all tokens never exist together. Tokens without a
// target cost nothing.
struct HeadArgs {
  int64_t R, C, V, chunk_rows;
  Dtype dtype, grad_dtype;
  const void* x;  // (R, C)
  const void* weight;
  const int32_t* targets;
  float* losses;  // (R)
  void* dx;       // (R, C) or null
  void* dweight;  // (V, C) of grad_dtype, or null
  bool with_gradient;
  bool accumulate;  // into dweight
};
HeadArgs head_args(const View& v, const Node& node);
size_t head_workspace(const Kernels& kernels, const HeadArgs& args, int num_threads);
void run_head(const Kernels& kernels, const Context& context, const HeadArgs& args);

// logits[b] = weight · x[b, last[b]] as fp32.
struct HeadLogitsArgs {
  int64_t B, T, C, V;
  Dtype dtype;
  const void* x;
  const void* weight;
  const int32_t* last;
  float* logits;
};
HeadLogitsArgs head_logits_args(const View& v, const Node& node);
size_t head_logits_workspace(const Kernels& kernels, const HeadLogitsArgs& args, int num_threads);
void run_head_logits(const Kernels& kernels, const Context& context, const HeadLogitsArgs& args);

}  // namespace weft
