// exec/head.h: the language-model head fused with cross entropy, one chunk of tokens at a time.
#pragma once

#include "exec/mesh.h"
#include "exec/products.h"
#include "exec/view.h"
#include "kernel/head_kernels.h"
#include "tensor/loss_scale.h"

namespace weft {

// For each chunk of tokens: logits, loss, and (with_gradient) their gradient in place, then dx and
// dweight; the logits of all tokens never exist together.
//
// Which tokens are computed is the device's choice. The CPU gathers those that have a target, so
// that the others cost nothing; where work is queued for a GPU the host does not know them, and all
// are computed: one without a target has no loss and a gradient of zeros.
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
// The rest of a context's workspace after the first bytes.
inline Context after(const Context& c, int64_t bytes) {
  return {c.pool, c.workspace + bytes, c.workspace_bytes - static_cast<size_t>(bytes), c.stream};
}
// Whether the softmax is computed in leaves.
inline bool is_split(const HeadArgs& a) { return a.leaves > 0 || a.num_ranks > 1; }
// Doubles that a rank contributes per token: (maximum, sum) of each leaf, and the target's logit.
inline int64_t stats_per_token(const HeadArgs& a) { return 2 * a.weight.count + 1; }

// Tokens whose logits exist at one time on a GPU: enough for products at full speed.
inline constexpr int64_t kDeviceHeadRows = 8192;

// Offsets in the workspace; those before logits are only for the CPU.
struct HeadLayout {
  int64_t rows, targets, losses, x, dx;
  int64_t logits, dweight, leaves, highest, sums, scale, local, products, total;
};

// Bound to the workspace of the context it is created with; running it does not allocate.
class Head {
 public:
  Head(const Kernels& kernels, const HeadArgs& args, const Context& context);
  void run(bool accumulate) const;  // accumulate: into dweight

 private:
  struct Chunk {  // where its tokens are: gathered, or in place
    int64_t begin, n;
    const void* x;
    const int32_t* targets;
    float* losses;
  };
  int64_t choose_rows() const;
  Chunk take(int64_t begin, int64_t n) const;
  void find_losses(const Chunk& chunk) const;
  void store_leaves(const Chunk& chunk, double* leaves) const;
  void differentiate_leaves(const Chunk& chunk) const;
  void find_dx(const Chunk& chunk) const;
  void find_dweight(const Chunk& chunk, bool is_last, bool accumulate) const;
  void store_dweight(bool accumulate) const;

  template <typename T = std::byte>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(context_.workspace + offset);
  }

  const Kernels* kernels_;
  HeadKernels steps_;
  HeadArgs args_;
  bool gathers_;
  HeadLayout layout_;
  Context context_, products_;
  std::vector<Products> dx_;  // by chunk; gathered: of a full one
};

// logits[b] = weight · x[b, last[b]] as fp32.
struct HeadLogitsArgs {
  int64_t B, T, C, V;
  Dtype dtype;
  const void* x;
  Stack weight;  // pieces (V_p, C)
  const int32_t* last;
  float* logits;
};
HeadLogitsArgs head_logits_args(const View& v, const Node& node);
size_t head_logits_workspace(const Kernels& kernels, const HeadLogitsArgs& args, int num_threads);
void run_head_logits(const Kernels& kernels, const Context& context, const HeadLogitsArgs& args);

}  // namespace weft
