// exec/device_limits.cpp: the extents of the nodes against kernel/device_limits.h.
#include "exec/device_limits.h"

#include "base/error.h"
#include "exec/node_args.h"
#include "kernel/device_limits.h"

namespace weft {
namespace {

void check(int64_t got, int64_t most, const char* what, const char* hint) {
  if (got > most)
    throw UserError(fmt::format("{}: {}; on a GPU it is {} at most", what, got, most), hint);
}

constexpr const char* kOnCpu = "set launch.device to cpu, or take another model";
constexpr const char* kSmallerPass = "lower train.micro_batch or data.seq_length";
constexpr const char* kFewerRows = "lower train.micro_batch";
constexpr const char* kFewerHeads = "raise parallel.tp, or set launch.device to cpu";

template <typename Args>
void check_attention(const Args& a) {
  check(a.B, kMostGridRows, "rows of a pass", kFewerRows);
  check(a.H, kMostGridRows, "attention heads of a rank", kFewerHeads);
}

}  // namespace

void check_device_limits(const Graph& graph) {
  const std::vector<std::byte*> nothing(graph.values.size(), nullptr);
  const View v{graph, nothing};
  for (const Node& n : graph.pass) {
    switch (n.op) {
      case Op::kAttention:
        check_attention(attention_args(v, n));
        break;
      case Op::kCachedAttention: {
        const CachedAttentionArgs a = cached_attention_args(v, n);
        check_attention(a);
        check(a.T, kMostGridRows, "new positions of a prompt", "give shorter prompts");
        break;
      }
      case Op::kRmsNorm:
        check(rmsnorm_args(v, n).C, kMostNormChannels, "the model's hidden size", kOnCpu);
        break;
      case Op::kEmbeddingGrad:
        check(embedding_grad_args(v, n, 0).R, kMostPassTokens, "tokens of a pass", kSmallerPass);
        break;
      default:
        break;
    }
  }
}

}  // namespace weft
