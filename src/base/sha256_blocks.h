// base/sha256_blocks.h: the compression function of SHA-256 (base/sha256.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Adds `count` blocks of 64 bytes to the state of 8 words; with the processor's own instructions
// where it has them (built for Arm).
void sha256_blocks(uint32_t* state, const uint8_t* blocks, size_t count);
// The same without them.
void sha256_blocks_portable(uint32_t* state, const uint8_t* blocks, size_t count);

}  // namespace weft
