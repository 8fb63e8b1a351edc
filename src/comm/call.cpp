// comm/call.cpp: comparing calls, and describing them.
#include "comm/call.h"

#include <algorithm>

#include "base/error.h"

namespace weft {

bool is_same(const CommCall& a, const CommCall& b) {
  return a.op == b.op && a.dtype == b.dtype && a.reduce == b.reduce && a.root == b.root &&
         a.bytes == b.bytes && a.number == b.number;
}

std::string describe(const CommCall& call) {
  std::string text = comm_op_name(call.op);
  if (call.op == CommOp::kBarrier) return text;
  text += fmt::format(" of {} bytes", call.bytes);
  if (call.op == CommOp::kAllReduce || call.op == CommOp::kReduceScatter) {
    text += fmt::format(" ({}, {})", dtype_name(call.dtype),
                        call.reduce == Reduce::kSum ? "sum" : "max");
  }
  if (call.op == CommOp::kBroadcast) text += fmt::format(" from {}", call.root);
  return text;
}

std::string describe_latest(uint64_t latest) {
  if (latest == 0 || (latest & 0xff) >= kNumCommOps) return "no call";
  return fmt::format("{} number {}", comm_op_name(static_cast<CommOp>(latest & 0xff)), latest >> 8);
}

std::vector<int> members_of(const std::vector<SplitWish>& wishes, int color) {
  std::vector<int> members;
  for (size_t m = 0; m < wishes.size(); ++m) {
    if (wishes[m].color == color) members.push_back(static_cast<int>(m));
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  return members;
}

}  // namespace weft
