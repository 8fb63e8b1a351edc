// net/store_frame.h: the wire format between StoreClient and StoreServer.
//
// length (4 bytes, of the rest), kind (1), length of the key (2), key, value. Little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

inline constexpr uint32_t kMaxStoreFrame = 64 << 10;
inline constexpr const char* kStoreProtocol = "weft-store-1";

enum StoreKind : uint8_t {
  kStoreChallenge = 1,  // server, where there is no secret: key = protocol
  kStoreHello,          // client: likewise
  kStoreSet,
  kStoreLastWill,
  kStoreGet,
  kStoreValue,  // server: the key that was asked for, and its value
  kStoreBye,
};

struct StoreFrame {
  uint8_t kind;
  std::string key, value;
};

inline uint32_t read_store_length(const char* in) {
  const auto byte = [in](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(in[i])); };
  return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
}

inline std::string write_store_frame(uint8_t kind, const std::string& key,
                                     const std::string& value) {
  const auto length = static_cast<uint32_t>(3 + key.size() + value.size());
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(length >> (8 * i));
  out += static_cast<char>(kind);
  out += static_cast<char>(key.size());
  out += static_cast<char>(key.size() >> 8);
  return out + key + value;
}

// Null where the bytes (after the length) are not a frame.
inline std::optional<StoreFrame> parse_store_frame(const char* in, size_t bytes) {
  if (bytes < 3) return std::nullopt;
  const size_t key = static_cast<uint8_t>(in[1]) | static_cast<size_t>(static_cast<uint8_t>(in[2]))
                                                       << 8;
  if (key > bytes - 3) return std::nullopt;
  return StoreFrame{static_cast<uint8_t>(in[0]), std::string(in + 3, key),
                    std::string(in + 3 + key, bytes - 3 - key)};
}

}  // namespace weft
