// kernel/cpu/level/embedding.cpp: rows of a table by number, and their gradient.
//
// Backward sorts (id, row) pairs. The rows of one id are then adjacent, in order of row: a run. A
// run is summed in fp32 and added to the table once.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/workspace.h"

namespace weft::WEFT_LEVEL {
namespace {

constexpr int64_t kRunsPerTask = 32;
constexpr int64_t kColumnsPerTask = 256;  // so that one frequent id does not hold up the others

struct Runs {
  uint64_t* keys;   // (R) id << 32 | row
  int64_t* starts;  // (R + 1) first key of every run, then the end
  int64_t count;
};

Runs sort_rows(const Context& context, const EmbeddingBackwardArgs& args) {
  Runs runs;
  runs.keys = reinterpret_cast<uint64_t*>(context.workspace);
  runs.starts = reinterpret_cast<int64_t*>(runs.keys + args.R);
  runs.count = 0;
  int64_t n = 0;
  for (int64_t r = 0; r < args.R; ++r) {
    const int64_t id = args.ids[r] - args.first_id;
    if (args.ids[r] == args.padding_id || id < 0 || id >= args.V) continue;
    runs.keys[n++] = static_cast<uint64_t>(id) << 32 | static_cast<uint64_t>(r);
  }
  sort_keys(runs.keys, n);
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || runs.keys[i] >> 32 != runs.keys[i - 1] >> 32) runs.starts[runs.count++] = i;
  }
  runs.starts[runs.count] = n;
  return runs;
}

template <typename T, typename Grad>
void add_run(const EmbeddingBackwardArgs& args, const Runs& runs, int64_t run, int64_t first,
             int64_t count) {
  const T* dout = static_cast<const T*>(args.dout) + first;
  const int64_t id = static_cast<int64_t>(runs.keys[runs.starts[run]] >> 32);
  Grad* to = static_cast<Grad*>(args.dtable) + id * args.C + first;
  each_vector(count, [&](int64_t i, auto part) {
    Vec sum = zero();
    for (int64_t k = runs.starts[run]; k < runs.starts[run + 1]; ++k) {
      const int64_t row = static_cast<int64_t>(runs.keys[k] & 0xffffffffu);
      sum = sum + load(dout + row * args.C + i, part);
    }
    store(to + i, load(to + i, part) + sum, part);
  });
}

template <typename T, typename Grad>
void add_runs(const Context& context, const EmbeddingBackwardArgs& args, const Runs& runs) {
  const int64_t pieces = blocks_of(args.C, kColumnsPerTask);
  context.pool->run(blocks_of(runs.count, kRunsPerTask) * pieces, [&](int64_t task, int) {
    const int64_t first = task % pieces * kColumnsPerTask;
    const int64_t begin = task / pieces * kRunsPerTask;
    const int64_t end = lesser(runs.count, begin + kRunsPerTask);
    for (int64_t run = begin; run < end; ++run) {
      add_run<T, Grad>(args, runs, run, first, lesser(kColumnsPerTask, args.C - first));
    }
  });
}

}  // namespace

// Adding zero turns -0 into +0, as adding the zeros of other ranks would.
void embedding(const Context& context, const EmbeddingArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    each_row(context, args.R, args.C, [&](int64_t r) {
      const int64_t id = args.ids[r] - args.first_id;
      T* out = static_cast<T*>(args.out) + r * args.C;
      if (id >= 0 && id < args.V) {
        const T* row = static_cast<const T*>(args.table) + id * args.C;
        each_vector(args.C, [&](int64_t i, auto part) {
          store(out + i, load(row + i, part) + zero(), part);
        });
      } else if (!args.keep_others) {
        __builtin_memset(out, 0, static_cast<size_t>(args.C) * sizeof(T));
      }
    });
  });
}

size_t embedding_backward_workspace(const EmbeddingBackwardArgs& args, int) {
  return static_cast<size_t>(args.R) * sizeof(uint64_t) +
         static_cast<size_t>(args.R + 1) * sizeof(int64_t);
}

void embedding_backward(const Context& context, const EmbeddingBackwardArgs& args) {
  check_workspace("embedding_backward", embedding_backward_workspace(args, 1),
                  context.workspace_bytes);
  if (!args.accumulate) {
    const int64_t size = args.grad_dtype == Dtype::kBf16 ? 2 : 4;
    each_piece(context, args.V * args.C, [&](int64_t first, int64_t count) {
      __builtin_memset(static_cast<std::byte*>(args.dtable) + first * size, 0,
                       static_cast<size_t>(count * size));
    });
  }
  const Runs runs = sort_rows(context, args);
  with_type(args.dtype, [&](auto value) {
    with_type(args.grad_dtype, [&](auto gradient) {
      add_runs<decltype(value), decltype(gradient)>(context, args, runs);
    });
  });
}

}  // namespace weft::WEFT_LEVEL
