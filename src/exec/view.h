// exec/view.h: addresses of a graph's values, for the bindings of operations (exec/ops/).
//
// Used twice: with fake addresses (Nowhere) when a plan computes a node's workspace, and with
// addresses in the arena when an executor binds its calls.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "kernel/kernels.h"

namespace weft {

struct View {
  const Graph& graph;
  const std::vector<std::byte*>& data;  // by value

  const Value& value(Ref r) const { return graph[r]; }
  template <typename T = void>
  T* at(Ref r) const {
    return r ? reinterpret_cast<T*>(data[static_cast<size_t>(r.id)]) : nullptr;
  }
  // The same from a column of the last dim on.
  const std::byte* at_column(Ref r, int64_t column) const;
  int64_t first_row(Ref r) const { return portion_of(graph[r]).offset[0]; }  // of a table's piece
  int64_t tokens(Ref r) const { return graph[r].shape[0] * graph[r].shape[1]; }  // of (B, T, ...)
};

// Gives every value some address, for workspace queries: these check whether an argument is null,
// but never dereference it.
class Nowhere {
 public:
  explicit Nowhere(const Graph& graph);
  Nowhere(const Nowhere&) = delete;
  Nowhere& operator=(const Nowhere&) = delete;
  const View& view() const { return view_; }

 private:
  std::vector<std::byte*> data_;
  View view_;
};

// `count` matrices from refs[begin] on, stacked; one matrix.
Stack stacked(const View& v, const std::vector<Ref>& refs, size_t begin, int count);
Stack single_stack(void* data, int64_t rows, int64_t ld);

}  // namespace weft
