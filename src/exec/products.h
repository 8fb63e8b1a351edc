// exec/products.h: the matrix products of a node: one call, or the leaves of a tree.
#pragma once

#include <limits>
#include <vector>

#include "exec/node_args.h"

namespace weft {

// The calls of a node in order. Sums of leaves that are not the result yet lie in fp32 at the
// beginning of the workspace (partial_bytes); the products' own workspace follows.
struct Products {
  std::vector<GemmArgs> calls;
  int64_t partial_bytes = 0;
};

// linear, linear_dx and linear_dw. workspace: of the context, or null while planning.
Products make_products(const View& v, const Node& node, const Kernels& kernels,
                       std::byte* workspace);
size_t products_workspace(const Kernels& kernels, const Products& products, int num_threads);

// C = sum over leaves of a tree: leaves[s] are the products that make leaf s, added in order. The
// calls' C, addends and accumulate are set here; c: where and as what the result goes. Where the
// sums on the way take more than most_bytes, a block of rows goes through the whole tree before the
// next one begins; no element's bits depend on it.
void add_leaves(const std::vector<std::vector<GemmArgs>>& leaves, const Stack& c, Dtype c_dtype,
                int64_t most_bytes, std::byte* workspace, Products* products);

// Sums of leaves that are read again at once should be found in a GPU's second cache (50 MB on an
// H200, of which the factors take some). A CPU packs a factor anew for every call: one call there.
inline constexpr int64_t kGpuSumsBytes = int64_t{24} << 20;
inline constexpr int64_t kAnySumsBytes = std::numeric_limits<int64_t>::max();

// The call with its C moved to the accumulator that leaf `leaf` goes to, adding what it meets.
GemmArgs into_slots(GemmArgs call, int64_t leaf, int64_t group_leaves, int64_t slot_stride);

}  // namespace weft
