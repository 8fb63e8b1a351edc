// io/torch_writer.cpp: data.pkl, byteorder, data/0, data/1 ..., version.
#include "io/torch_writer.h"

#include <algorithm>

#include "base/error.h"
#include "io/torch_file.h"

namespace weft {

void pickle_tensor(PickleWriter& out, size_t storage, Dtype dtype, const Shape& shape) {
  const std::string_view type = torch_storage_name(dtype);
  const size_t dot = type.rfind('.');
  out.call("torch._utils", "_rebuild_tensor_v2", [&] {
    out.persistent([&] {
      out.text("storage");
      out.global(type.substr(0, dot), type.substr(dot + 1));
      out.text(std::to_string(storage));
      out.text("cpu");
      out.integer(num_elements(shape));
    });
    out.integer(0);  // offset
    out.numbers(shape);
    out.numbers(row_major_strides(shape));
    out.boolean(false);  // requires_grad
    out.call("collections", "OrderedDict", [] {});
  });
}

TorchWriter::TorchWriter(FileWriter* out, std::string_view pickle, std::vector<uint64_t> storages)
    : zip_(out), storages_(std::move(storages)) {
  zip_.add("archive/data.pkl", pickle);
  zip_.add("archive/byteorder", "little");
  begin_next();
}

// The next storage that has bytes; those without are members too.
void TorchWriter::begin_next() {
  while (missing_ == 0 && next_ < storages_.size()) {
    missing_ = storages_[next_];
    zip_.begin(fmt::format("archive/data/{}", next_), missing_);
    ++next_;
  }
}

void TorchWriter::write(const void* bytes, size_t size) {
  const auto* at = static_cast<const std::byte*>(bytes);
  while (size > 0) {
    ensure(missing_ > 0, "more bytes than the storages have");
    const auto count = static_cast<size_t>(std::min<uint64_t>(size, missing_));
    zip_.write(at, count);
    at += count;
    size -= count;
    missing_ -= count;
    begin_next();
  }
}

uint64_t TorchWriter::finish() {
  ensure(missing_ == 0 && next_ == storages_.size(), "bytes of a storage are missing");
  zip_.add("archive/version", "3\n");
  return zip_.finish();
}

}  // namespace weft
