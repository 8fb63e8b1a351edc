// train/batch_runner.cpp: copies rows into the executor's inputs.
#include "train/batch_runner.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace weft {
namespace {

void fill_elements(std::byte* to, Dtype dtype, int64_t count, int64_t value) {
  if (dtype == Dtype::kI64) {
    std::fill_n(reinterpret_cast<int64_t*>(to), count, value);
  } else {
    std::fill_n(reinterpret_cast<int32_t*>(to), count, static_cast<int32_t>(value));
  }
}

}  // namespace

void take_share(const RunConfig& c, const Layout& layout, int rank, StreamOptions* options) {
  options->dp = layout.dp;
  options->dp_rank = layout.dp_rank(rank);
  const bool in_turn = layout.data(rank, c.num_passes()).is_pass_major();
  options->rows_per_turn = in_turn ? c.micro_batch() : 0;
  // Exact mode pads to the longest row of the global batch, which no layout changes.
  options->rows_per_pass = layout.is_exact ? 0 : c.micro_batch();
}

BatchRunner::BatchRunner(Executor* executor, const Passes& passes)
    : executor_(executor), passes_(passes) {
  const Graph& graph = executor->plan().graph;
  for (Ref r : graph.of_kind(ValueKind::kInput)) {
    const Value& v = graph[r];
    ensure(v.dtype == Dtype::kI32 || v.dtype == Dtype::kI64, v.name + " is of another type");
    ensure(v.shape[0] == passes.rows, v.name + " has other rows than a pass");
    inputs_.push_back({v.name, v.dtype, num_elements(v.shape) / passes.rows, v.fill});
  }
}

void BatchRunner::run(const Batch& batch, int64_t pass) {
  for (const Input& input : inputs_) feed(batch, pass, input);
  StepScalars scalars;
  scalars.pass = static_cast<int>(pass);
  scalars.is_last_pass = pass + 1 == passes_.count;
  executor_->run_pass(scalars);
}

// Of each row of the batch the first elements are taken: it may be padded further than the plan.
void BatchRunner::feed(const Batch& batch, int64_t pass, const Input& input) {
  const BatchTensor* from = batch.find(input.name);
  if (!from || from->dtype != input.dtype || from->width < input.width)  // ensure() would allocate
    throw BugError("the batch has no " + input.name + " of the model's shape and type");
  const int64_t first = pass * passes_.rows;
  const int64_t have = std::clamp<int64_t>(batch.num_rows - first, 0, passes_.rows);
  const int64_t bytes = input.width * dtype_bytes(input.dtype);
  auto* to = executor_->input<std::byte>(input.name);
  for (int64_t row = 0; row < have; ++row, to += bytes)
    std::memcpy(to, from->row(first + row), static_cast<size_t>(bytes));
  fill_elements(to, input.dtype, (passes_.rows - have) * input.width, input.fill);
}

}  // namespace weft
