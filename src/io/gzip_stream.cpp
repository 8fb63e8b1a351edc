// io/gzip_stream.cpp: gzip through zlib; several members one after the other are one stream.
#include <zlib.h>

#include <vector>

#include "base/error.h"
#include "io/byte_stream.h"

namespace weft {
namespace {

constexpr size_t kPackedBytes = size_t{1} << 16;
constexpr int kGzip = 15 + 16;  // the largest window, and gzip headers only

class GzipStream : public ByteStream {
 public:
  GzipStream(std::unique_ptr<ByteStream> packed, std::string name)
      : packed_(std::move(packed)), name_(std::move(name)), buffer_(kPackedBytes) {
    ensure(inflateInit2(&state_, kGzip) == Z_OK, "inflateInit2 failed");
  }
  ~GzipStream() override { inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(char* out, size_t size) override {
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = static_cast<uInt>(std::min<size_t>(size, size_t{1} << 30));
    const uInt asked = state_.avail_out;
    while (state_.avail_out == asked && fetch()) {
      in_member_ = true;
      const int status = inflate(&state_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        in_member_ = false;
        ensure(inflateReset2(&state_, kGzip) == Z_OK, "inflateReset2 failed");
      } else {
        require(status == Z_OK || status == Z_BUF_ERROR, "{}: damaged gzip data: {}", name_,
                state_.msg ? state_.msg : "unknown");
      }
    }
    return asked - state_.avail_out;
  }

 private:
  // Reads more compressed bytes where the buffer is empty; false at the end.
  bool fetch() {
    if (state_.avail_in > 0) return true;
    const size_t n = packed_->read(buffer_.data(), buffer_.size());
    require(n > 0 || !in_member_, "{}: the gzip data is truncated", name_);
    state_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    state_.avail_in = static_cast<uInt>(n);
    return n > 0;
  }

  std::unique_ptr<ByteStream> packed_;
  std::string name_;
  std::vector<char> buffer_;
  z_stream state_{};
  bool in_member_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_gzip(std::unique_ptr<ByteStream> packed, std::string name) {
  return std::make_unique<GzipStream>(std::move(packed), std::move(name));
}

}  // namespace weft
