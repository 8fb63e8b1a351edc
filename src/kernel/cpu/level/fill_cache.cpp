// kernel/cpu/level/fill_cache.cpp: copies of new keys and values into a cache, head by head.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"

namespace weft::WEFT_LEVEL {
namespace {

// Heads that are side by side are copied at once.
void copy_heads(const FillCacheArgs& args, const HeadsIn& from, int64_t b, int64_t t, void* cache) {
  const int64_t element = dtype_bytes(args.dtype), columns = args.G * args.D;
  const int64_t start = args.starts ? args.starts[b] : 0;
  auto* to =
      static_cast<std::byte*>(cache) + (b * args.max_positions + start + t) * columns * element;
  const auto* data = static_cast<const std::byte*>(from.data) + from.at(b, t, 0) * element;
  const bool is_run = from.head == args.D;
  const int64_t runs = is_run ? 1 : args.G, size = (is_run ? columns : args.D) * element;
  for (int64_t g = 0; g < runs; ++g) {
    __builtin_memcpy(to + g * size, data + g * from.head * element, static_cast<size_t>(size));
  }
}

}  // namespace

void fill_cache(const Context& context, const FillCacheArgs& args) {
  each_row(context, args.B * args.T, args.G * args.D, [&](int64_t r) {
    const int64_t b = r / args.T, t = r % args.T;
    if (t >= args.lengths[b]) return;
    copy_heads(args, args.k, b, t, args.k_cache);
    copy_heads(args, args.v, b, t, args.v_cache);
  });
}

}  // namespace weft::WEFT_LEVEL
