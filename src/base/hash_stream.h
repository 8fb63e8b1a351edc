// base/hash_stream.h: hash_bytes over bytes that arrive in pieces.
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
  uint64_t value() const;  // what hash_bytes returns for all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
