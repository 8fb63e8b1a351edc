// base/hash_stream.cpp: libxxhash's state, inlined.
#include "base/hash_stream.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {

struct HashStream::State {
  XXH64_state_t xxh;
};

HashStream::HashStream() : state_(std::make_unique<State>()) { XXH64_reset(&state_->xxh, 0); }
HashStream::~HashStream() = default;

void HashStream::add(const void* bytes, size_t size) { XXH64_update(&state_->xxh, bytes, size); }
uint64_t HashStream::value() const { return XXH64_digest(&state_->xxh); }

}  // namespace weft
