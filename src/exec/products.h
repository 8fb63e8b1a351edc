// exec/products.h: the matrix products of a node: one call, or the leaves of a tree.
#pragma once

#include <vector>

#include "exec/view.h"

namespace weft {

// The calls of a node in order. Intermediate sums of leaves are in fp32 at the start of the
// workspace (partial_bytes); the products' own workspace follows.
struct Products {
  std::vector<GemmArgs> calls;
  int64_t partial_bytes = 0;
};

// linear, linear_dx and linear_dw. workspace: of the context, or null while planning.
Products make_products(const View& v, const Node& node, std::byte* workspace);
size_t products_workspace(const Kernels& kernels, const Products& products, int num_threads);

// C = sum over leaves of a tree: leaves[s] are the products of leaf s, added in order. The calls'
// C, addends and accumulate are set here; c: where and in which dtype the result goes.
void add_leaves(const std::vector<std::vector<GemmArgs>>& leaves, Stack c, Dtype c_dtype,
                std::byte* workspace, Products* products);

// The call with its C moved to the accumulator that leaf `leaf` goes to, accumulating there.
GemmArgs into_slots(GemmArgs call, int64_t leaf, int64_t group_leaves, int64_t slot_stride);

}  // namespace weft
