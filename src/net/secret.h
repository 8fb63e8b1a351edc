// net/secret.h: what the processes of one run know and nobody else does.
//
// A secret is a text in a file that only its owner may read. It is never on a command line, in the
// environment, in a log or on the wire: the handshake proves that both sides know it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/sha256.h"

namespace weft {

using Nonce = std::array<uint8_t, 32>;
Nonce random_nonce();  // of the kernel's generator

class Secret {
 public:
  static Secret random();  // 32 random bytes, as 64 hexadecimal digits
  // UserError where it is shorter than 16 bytes or longer than 4096; `source` names it.
  static Secret from_text(std::string_view text, std::string_view source);
  // UserError where the file is missing, no regular file, of another size than above, or readable
  // or writable by anyone but its owner. Line ends at the end of the file are no part of it.
  static Secret from_file(const std::filesystem::path& path);
  // A new file of mode 0600. UserError where the path exists: it is never overwritten.
  void write_new_file(const std::filesystem::path& path) const;

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = delete;
  ~Secret();  // overwrites the bytes

  // The key of all that is derived from it.
  Digest key() const;

 private:
  explicit Secret(std::string_view text);
  std::vector<char> text_;
};

}  // namespace weft
