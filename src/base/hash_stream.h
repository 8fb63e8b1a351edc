// base/hash_stream.h: hash_bytes over bytes that come in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft {

class HashStream {
 public:
  HashStream();
  ~HashStream();
  HashStream(const HashStream&) = delete;
  HashStream& operator=(const HashStream&) = delete;

  void add(const void* bytes, size_t size);
  uint64_t value() const;  // of all that was added: what hash_bytes gives of it in one piece

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
