// base/sha256.h: SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for the network's secret.
//
// Written here because no library that weft links has them, and it must also build where there is
// nothing but CUDA (docs/design/0017-channels.md). No table lookup and no branch depends on data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

using Digest = std::array<uint8_t, 32>;

inline std::string_view bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  [[nodiscard]] Digest finish();  // once

 private:
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_{};
  uint64_t num_bytes_ = 0;
};

[[nodiscard]] Digest sha256(std::string_view bytes);

// A key, ready for any number of messages: copy it, update the copy, finish the copy.
class HmacSha256 {
 public:
  explicit HmacSha256(std::string_view key);
  void update(std::string_view bytes) { inner_.update(bytes); }
  [[nodiscard]] Digest finish();

 private:
  Sha256 inner_, outer_;
};

[[nodiscard]] Digest hmac_sha256(std::string_view key, std::string_view message);

// Takes the same time wherever the first difference is. False where the sizes differ.
[[nodiscard]] bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace weft
