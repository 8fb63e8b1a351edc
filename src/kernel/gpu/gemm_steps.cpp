// kernel/gpu/gemm_steps.cpp: blocks of C, and for each the copies, the call and the sum that make
// it.
#include "kernel/gpu/gemm_steps.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/round_up.h"

namespace weft {
namespace {

constexpr int64_t kStep = kExtentStep;
constexpr int64_t kPlaceAlignment = 256;
// The widest block whose fp32 temporary is cut by rows: 2048 rows of it fill kPlanBlockBytes.
constexpr int64_t kSumColumns = 4096;

std::byte* moved(const void* at, int64_t elements, Dtype dtype) {
  if (!at) return nullptr;
  return const_cast<std::byte*>(static_cast<const std::byte*>(at)) + elements * dtype_bytes(dtype);
}

int64_t pointer_alignment(const void* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return int64_t{1} << std::min(8, std::countr_zero(address));  // at most 256
}

bool is_aligned(const void* at, int64_t ld, Dtype dtype) {
  return pointer_alignment(at) >= kOperandAlignment &&
         ld * dtype_bytes(dtype) % kOperandAlignment == 0;
}

// Rows [first, first + rows) of a stack; parts that are contiguous in memory become one.
Stack slice(const Stack& stack, int64_t first, int64_t rows, Dtype dtype) {
  Stack s;
  s.ld = stack.ld;
  for (int p = 0; p < stack.count && rows > 0; ++p) {
    if (first >= stack.rows[p]) {
      first -= stack.rows[p];
      continue;
    }
    const int64_t taken = std::min(rows, stack.rows[p] - first);
    std::byte* at = moved(stack.part[p], first * stack.ld, dtype);
    const int last = s.count - 1;
    if (last >= 0 && at == moved(s.part[last], s.rows[last] * s.ld, dtype)) {
      s.rows[last] += taken;
    } else {
      s.part[s.count] = at;
      s.rows[s.count++] = taken;
    }
    first = 0;
    rows -= taken;
  }
  ensure(rows == 0, "a stack has fewer rows than its product");
  return s;
}

// Contiguous rows of `stack` from `first` on.
int64_t rows_together(const Stack& stack, int64_t first, int64_t end, Dtype dtype) {
  return slice(stack, first, end - first, dtype).rows[0];
}

// How many rows of K may be copied at once: whole library tiles where they fit.
int64_t most_packed(int64_t K, int64_t size) {
  constexpr int64_t kTile = 64;
  const int64_t rows = kPlanBlockBytes / (round_up(K, kStep) * size);
  return rows >= kTile ? rows / kTile * kTile : std::max(kStep, rows / kStep * kStep);
}

// An upper bound that grows with both extents.
int64_t pack_bytes(int64_t extent, int64_t K, int64_t size) {
  const int64_t row_bytes = round_up(K, kStep) * size;
  return std::min(round_up(extent, kStep) * row_bytes,
                  std::max(kPlanBlockBytes, kStep * row_bytes));
}

int64_t sum_bytes(int64_t M, int64_t N) {
  return std::min(round_up(M, kStep) * round_up(N, kStep) * 4, kPlanBlockBytes);
}

// Where the pieces of the workspace begin.
struct Places {
  int64_t bias, a, b, sum, total;
};

Places lay_out(const GemmArgs& g) {
  const int64_t size = dtype_bytes(g.dtype);
  Places at{};
  at.a = at.bias + round_up(g.N * size, kPlaceAlignment);
  at.b = at.a + round_up(pack_bytes(g.M, g.K, size), kPlaceAlignment);
  at.sum = at.b + round_up(pack_bytes(g.N, g.K, size), kPlaceAlignment);
  at.total = at.sum + round_up(sum_bytes(g.M, g.N), kPlaceAlignment);
  return at;
}

std::byte* aligned_place(std::byte* at) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(at));
  return at + (round_up(address, kPlaceAlignment) - address);
}

struct Operand {
  const void* at = nullptr;
  int64_t ld = 0;
};

class Planner {
 public:
  Planner(const GemmArgs& args, std::byte* workspace, std::vector<GemmStep>* steps)
      : g_(args), base_(aligned_place(workspace)), places_(lay_out(args)), steps_(steps) {
    if (args.b_transposed) {
      bias_.count = args.b.count;
      for (int p = 0; p < args.b.count; ++p) {
        bias_.part[p] = const_cast<void*>(args.bias[p]);
        bias_.rows[p] = args.b.rows[p];
        has_bias_ = has_bias_ || (args.bias[p] && args.b.rows[p] > 0);
      }
    } else {
      bias_.count = 1;
      bias_.part[0] = const_cast<void*>(args.bias[0]);
      bias_.rows[0] = args.N;
      has_bias_ = args.bias[0] != nullptr;
    }
    bias_.ld = 1;
  }

  void plan() {
    for (int64_t n = 0; n < g_.N;) n += plan_columns(n);
  }

 private:
  // Columns from n on; returns how many.
  int64_t plan_columns(int64_t n) {
    int64_t columns = g_.N - n;
    if (g_.b_transposed) columns = rows_together(g_.b, n, g_.N, g_.dtype);
    if (g_.K > 0 && !b_fits(n, columns)) columns = std::min(columns, most_packed(g_.K, size_of()));
    columns = without_end(columns);
    if (may_need_room(n, columns) &&
        round_up(g_.M, kStep) * round_up(columns, kStep) * 4 > kPlanBlockBytes) {
      columns = std::min(columns, kSumColumns);
    }
    const Operand b = g_.K > 0 ? take_b(n, columns) : Operand{};
    const void* bias = has_bias_ ? take_bias(n, columns) : nullptr;
    for (int64_t m = 0; m < g_.M;) m += plan_block(m, n, columns, b, bias);
    return columns;
  }

  int64_t size_of() const { return dtype_bytes(g_.dtype); }

  // The library handles extents in steps of kStep: the ragged end is a separate block.
  int64_t without_end(int64_t extent) const {
    return g_.K == 0 || extent < kStep ? extent : extent / kStep * kStep;
  }
  // Rows are contiguous in memory where A is transposed; columns always are, in C.
  bool has_ragged_rows(int64_t rows) const {
    return g_.K > 0 && g_.a_transposed && rows % kStep != 0;
  }
  bool has_ragged_columns(int64_t columns) const { return g_.K > 0 && columns % kStep != 0; }

  // B as it is can be an operand.
  bool b_fits(int64_t n, int64_t columns) const {
    const Stack s = b_rows(n, columns);
    return s.count == 1 && is_aligned(b_corner(s, n), g_.b.ld, g_.dtype);
  }
  Stack b_rows(int64_t n, int64_t columns) const {
    return g_.b_transposed ? slice(g_.b, n, columns, g_.dtype) : slice(g_.b, 0, g_.K, g_.dtype);
  }
  const void* b_corner(const Stack& s, int64_t n) const {
    return moved(s.part[0], g_.b_transposed ? 0 : n, g_.dtype);
  }

  Operand take_b(int64_t n, int64_t columns) {
    Stack s = b_rows(n, columns);
    if (b_fits(n, columns) && !has_ragged_columns(columns)) return {b_corner(s, n), g_.b.ld};
    for (int p = 0; p < s.count && !g_.b_transposed; ++p) {
      s.part[p] = moved(s.part[p], n, g_.dtype);
    }
    return pack(s, g_.b_transposed ? g_.K : columns, places_.b);
  }

  const void* take_bias(int64_t n, int64_t columns) {
    const Stack s = slice(bias_, n, columns, g_.dtype);
    if (s.count == 1 && pointer_alignment(s.part[0]) >= kOperandAlignment) return s.part[0];
    PackCall call{s, 1, g_.dtype, base_ + places_.bias, 1};
    steps_->push_back(call);
    return call.to;
  }

  Operand pack(const Stack& from, int64_t columns, int64_t place) {
    PackCall call{from, columns, g_.dtype, base_ + place, round_up(columns, kStep)};
    steps_->push_back(call);
    return {call.to, call.to_ld};
  }

  Operand a_at(int64_t m) const {
    return {moved(g_.a, g_.a_transposed ? m : m * g_.lda, g_.dtype), g_.lda};
  }

  Operand take_a(int64_t m, int64_t rows) {
    const Operand a = a_at(m);
    if (is_aligned(a.at, a.ld, g_.dtype) && !has_ragged_rows(rows)) return a;
    Stack s;
    s.count = 1;
    s.part[0] = const_cast<void*>(a.at);
    s.rows[0] = g_.a_transposed ? g_.K : rows;
    s.ld = a.ld;
    return pack(s, g_.a_transposed ? rows : g_.K, places_.a);
  }

  // Whether blocks of columns from n on may go through an fp32 temporary.
  bool may_need_room(int64_t n, int64_t columns) const {
    if (has_ragged_columns(columns)) return true;
    for (int p = 0; p < g_.c.count; ++p) {
      if (!is_aligned(moved(g_.c.part[p], n, g_.c_dtype), g_.c.ld, g_.c_dtype) ||
          has_ragged_rows(g_.c.rows[p])) {
        return true;
      }
    }
    for (int i = 0; i < g_.num_addends; ++i) {
      for (int p = 0; p < g_.addend[i].count; ++p) {
        if (has_ragged_rows(g_.addend[i].rows[p])) return true;
      }
    }
    if (adds_to_narrow()) return true;
    const bool has_more =
        g_.num_addends > 0 || (has_bias_ && (g_.c_dtype != g_.dtype || g_.accumulate));
    return has_more && (g_.c_dtype != Dtype::kF32 || g_.accumulate);
  }

  // Rows from m on of the columns from n on; returns how many.
  int64_t plan_block(int64_t m, int64_t n, int64_t columns, Operand b, const void* bias) {
    int64_t rows = rows_together(g_.c, m, g_.M, g_.c_dtype);
    for (int i = 0; i < g_.num_addends; ++i) {
      rows = std::min(rows, rows_together(g_.addend[i], m, g_.M, Dtype::kF32));
    }
    const Operand a = a_at(m);
    if (g_.K > 0 && !is_aligned(a.at, a.ld, g_.dtype)) {
      rows = std::min(rows, most_packed(g_.K, size_of()));
    }
    if (g_.a_transposed) rows = without_end(rows);
    const bool is_ragged = has_ragged_rows(rows) || has_ragged_columns(columns);
    SumCall sum = whole_sum(m, n, columns, bias);
    LtCall call;
    call.d = sum.out;
    call.problem.ldd = sum.out_ld;
    const bool c_fits = is_aligned(sum.out, sum.out_ld, sum.out_dtype);
    const bool first_fits = !is_ragged && sum.num_addends > 0 &&
                            is_aligned(sum.addend[0], sum.addend_ld[0], Dtype::kF32);
    const bool one_call = c_fits && !is_ragged && fits_one_call(bias, first_fits);
    if (!one_call && (!c_fits || is_ragged || g_.c_dtype != Dtype::kF32 || g_.accumulate)) {
      call.d = base_ + places_.sum;
      call.problem.ldd = round_up(columns, kStep);
      const int64_t room = kPlanBlockBytes / 4 / call.problem.ldd;
      rows = std::min(rows, std::max(kStep, room / kStep * kStep));
    }
    sum.rows = rows;
    if (g_.K > 0) {
      call.problem.d_dtype = one_call ? g_.c_dtype : Dtype::kF32;
      if (first_fits) {
        add_c(&call, sum.addend[0], sum.addend_ld[0]);
        drop_first(&sum);
      } else if (one_call && g_.accumulate) {
        add_c(&call, call.d, call.problem.ldd);
      }
      if (one_call) call.bias = bias;
      const Operand left = take_a(m, rows);
      steps_->push_back(finished(call, left, b, rows, columns));
      sum.product = static_cast<const float*>(call.d);
      sum.product_ld = call.problem.ldd;
    }
    if (!one_call || g_.K == 0) steps_->push_back(sum);
    return rows;
  }

  // The library would round the product before it adds a C of 16 bits.
  bool adds_to_narrow() const { return g_.accumulate && g_.c_dtype != Dtype::kF32; }

  // At most one addend: the order in which the library would add two is unknown.
  bool fits_one_call(const void* bias, bool first_fits) const {
    if (adds_to_narrow()) return false;
    if (bias && (g_.c_dtype != g_.dtype || g_.accumulate || g_.num_addends > 0)) return false;
    if (g_.num_addends == 0) return true;
    return g_.num_addends == 1 && first_fits && !g_.accumulate && g_.c_dtype == Dtype::kF32;
  }

  SumCall whole_sum(int64_t m, int64_t n, int64_t columns, const void* bias) const {
    SumCall sum;
    sum.columns = columns;
    sum.accumulate = g_.accumulate;
    sum.bias = bias;
    sum.bias_dtype = g_.dtype;
    sum.out = moved(slice(g_.c, m, 1, g_.c_dtype).part[0], n, g_.c_dtype);
    sum.out_ld = g_.c.ld;
    sum.out_dtype = g_.c_dtype;
    sum.num_addends = g_.num_addends;
    for (int i = 0; i < g_.num_addends; ++i) {
      const Stack s = slice(g_.addend[i], m, 1, Dtype::kF32);
      sum.addend[i] = reinterpret_cast<const float*>(moved(s.part[0], n, Dtype::kF32));
      sum.addend_ld[i] = s.ld;
    }
    return sum;
  }

  static void add_c(LtCall* call, const void* c, int64_t ld) {
    call->c = c;
    call->problem.ldc = ld;
    call->problem.adds_c = true;
  }

  static void drop_first(SumCall* sum) {
    --sum->num_addends;
    for (int i = 0; i < sum->num_addends; ++i) {
      sum->addend[i] = sum->addend[i + 1];
      sum->addend_ld[i] = sum->addend_ld[i + 1];
    }
  }

  // The library's operands are ours in the other order.
  LtCall finished(LtCall call, Operand left, Operand right, int64_t rows, int64_t columns) const {
    LtProblem& p = call.problem;
    p.m = round_up(columns, kStep);
    p.n = has_ragged_rows(rows) ? round_up(rows, kStep) : rows;
    p.k = g_.K;
    p.dtype = g_.dtype;
    p.a_transposed = g_.b_transposed;
    p.b_transposed = g_.a_transposed;
    call.a = right.at;
    call.b = left.at;
    p.lda = right.ld;
    p.ldb = left.ld;
    if (!p.adds_c) {
      call.c = call.d;
      p.ldc = p.ldd;
    }
    p.c_is_d = call.c == call.d;
    p.has_bias = call.bias != nullptr;
    p.alignment = std::min({pointer_alignment(call.a), pointer_alignment(call.b),
                            pointer_alignment(call.c), pointer_alignment(call.d)});
    if (call.bias) p.alignment = std::min(p.alignment, pointer_alignment(call.bias));
    return call;
  }

  const GemmArgs& g_;
  std::byte* base_;
  Places places_;
  std::vector<GemmStep>* steps_;
  Stack bias_;
  bool has_bias_ = false;
};

}  // namespace

void plan_gemm(const GemmArgs& args, std::byte* workspace, std::vector<GemmStep>* steps) {
  if (args.M > 0) Planner(args, workspace, steps).plan();
}

size_t gemm_steps_workspace(const GemmArgs& args) {
  return static_cast<size_t>(lay_out(args).total + kPlaceAlignment);
}

}  // namespace weft
