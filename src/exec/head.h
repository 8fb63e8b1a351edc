// exec/head.h: the language-model head fused with cross entropy, a chunk of tokens at a time.
#pragma once

#include "exec/mesh.h"
#include "exec/products.h"
#include "exec/view.h"
#include "tensor/loss_scale.h"

namespace weft {

// For each chunk of tokens that have a target: logits, loss, and (with_gradient) their gradient in
// place, then dx and dweight; the logits of all tokens never exist together. Tokens without a
// target cost nothing.
//
// The weight may be several pieces of the vocabulary, and other ranks may hold more of them. The
// softmax is then computed in leaves (one per piece): the ranks exchange their leaves' maxima and
// sums chunk by chunk. dx is this rank's addend.
struct HeadArgs {
  int64_t R, C, chunk_rows;
  int64_t V;  // of all pieces here
  Dtype dtype, grad_dtype, dx_dtype;
  const void* x;  // (R, C)
  Stack weight;   // pieces (V_p, C)
  int64_t first_id;
  const int32_t* targets;
  float* losses;  // (R)
  void* dx;       // (R, C) or null
  Stack dweight;  // pieces of grad_dtype; count 0: not needed
  bool with_gradient;
  int leaves;         // exact mode: pieces are leaves of the contraction too; 0: one product
  int num_ranks = 1;  // that hold pieces
  Comm* ranks = nullptr;
  const LossScale* loss_scale = nullptr;  // fp16: its factor multiplies the gradient
  const float* factor() const { return loss_scale ? &loss_scale->factor : nullptr; }
};
HeadArgs head_args(const View& v, const Node& node, const Mesh& mesh);
size_t head_workspace(const Kernels& kernels, const HeadArgs& args, int num_threads);

// Its products, of n tokens: logits, dx (one product over the vocabulary here, or its leaves in a
// tree) and dweight.
GemmArgs logits_product(const HeadArgs& a, int64_t n, const void* x, void* logits);
Products dx_products(const HeadArgs& a, int64_t n, std::byte* dlogits, void* dx,
                     std::byte* workspace);
GemmArgs dweight_product(const HeadArgs& a, int64_t n, void* dlogits, const void* x, Stack dweight,
                         Dtype dtype);
// Whether the softmax is computed in leaves.
inline bool is_split(const HeadArgs& a) { return a.leaves > 0 || a.num_ranks > 1; }
// Doubles that a rank contributes per token: (maximum, sum) of each leaf, and the target's logit.
inline int64_t stats_per_token(const HeadArgs& a) { return 2 * a.weight.count + 1; }

// Offsets of a chunk's pieces in the workspace.
struct HeadLayout {
  int64_t rows, targets, losses, x, logits, dx, dweight, leaves, highest, scale, products, total;
};

// Bound to the workspace of the context it is created with; running it does not allocate.
class Head {
 public:
  Head(const Kernels& kernels, const HeadArgs& args, const Context& context);
  void run(const Context& context, bool accumulate) const;  // accumulate: into dweight

 private:
  class Chunk;
  const Kernels* kernels_;
  HeadArgs args_;
  HeadLayout layout_;
  Products dx_;  // of a full chunk
};

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
GemmArgs last_product(const HeadLogitsArgs& a, void* x);
size_t head_logits_workspace(const Kernels& kernels, const HeadLogitsArgs& args, int num_threads);
void run_head_logits(const Kernels& kernels, const Context& context, const HeadLogitsArgs& args);

}  // namespace weft
