// io/zstd_stream.cpp: Zstandard; several frames one after the other are one stream.
#include <zstd.h>

#include <vector>

#include "base/error.h"
#include "io/byte_stream.h"

namespace weft {
namespace {

class ZstdStream : public ByteStream {
 public:
  ZstdStream(std::unique_ptr<ByteStream> packed, std::string name)
      : packed_(std::move(packed)),
        name_(std::move(name)),
        buffer_(ZSTD_DStreamInSize()),
        state_(ZSTD_createDStream()) {
    ensure(state_ != nullptr, "ZSTD_createDStream failed");
  }
  ~ZstdStream() override { ZSTD_freeDStream(state_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  size_t read(char* out, size_t size) override {
    ZSTD_outBuffer to{out, size, 0};
    while (to.pos == 0) {
      // Output that the frame still buffers needs no new input.
      if (from_.pos == from_.size && !is_full_) {
        const size_t n = packed_->read(buffer_.data(), buffer_.size());
        require(n > 0 || !in_frame_, "{}: the zstd data is truncated", name_);
        if (n == 0) return 0;
        from_ = {buffer_.data(), n, 0};
      }
      const size_t left = ZSTD_decompressStream(state_, &to, &from_);
      require(!ZSTD_isError(left), "{}: damaged zstd data: {}", name_, ZSTD_getErrorName(left));
      in_frame_ = left != 0;
      is_full_ = to.pos == to.size && in_frame_;
    }
    return to.pos;
  }

 private:
  std::unique_ptr<ByteStream> packed_;
  std::string name_;
  std::vector<char> buffer_;
  ZSTD_DStream* state_;
  ZSTD_inBuffer from_{nullptr, 0, 0};
  bool in_frame_ = false, is_full_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_zstd(std::unique_ptr<ByteStream> packed, std::string name) {
  return std::make_unique<ZstdStream>(std::move(packed), std::move(name));
}

}  // namespace weft
