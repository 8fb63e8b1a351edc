// io/pickle_writer.cpp: the instructions of the values.
#include "io/pickle_writer.h"

#include <bit>
#include <limits>

#include "base/error.h"
#include "io/pickle_opcodes.h"

namespace weft {
namespace {

void put(std::string& out, Op op) { out += static_cast<char>(op); }

void put_number(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace

void PickleWriter::none() { put(bytes_, Op::kNone); }

void PickleWriter::boolean(bool value) { put(bytes_, value ? Op::kNewTrue : Op::kNewFalse); }

void PickleWriter::integer(int64_t value) {
  const bool is_small =
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
  put(bytes_, is_small ? Op::kBinInt : Op::kLong1);
  if (!is_small) bytes_ += char{8};
  put_number(bytes_, static_cast<uint64_t>(value), is_small ? 4 : 8);
}

void PickleWriter::real(double value) {
  put(bytes_, Op::kBinFloat);
  const auto bits = std::bit_cast<uint64_t>(value);
  for (size_t i = 8; i-- > 0;) bytes_ += static_cast<char>(bits >> (8 * i) & 0xff);  // big-endian
}

void PickleWriter::text(std::string_view value) {
  ensure(value.size() <= std::numeric_limits<uint32_t>::max(), "a text of over 4 GiB in a pickle");
  put(bytes_, Op::kBinUnicode);
  put_number(bytes_, value.size(), 4);
  bytes_ += value;
}

void PickleWriter::tuple(const Fill& fill) {
  put(bytes_, Op::kMark);
  fill();
  put(bytes_, Op::kTuple);
}

void PickleWriter::list(const Fill& fill) {
  put(bytes_, Op::kEmptyList);
  put(bytes_, Op::kMark);
  fill();
  put(bytes_, Op::kAppends);
}

void PickleWriter::dict(const Fill& fill) {
  put(bytes_, Op::kEmptyDict);
  put(bytes_, Op::kMark);
  fill();
  put(bytes_, Op::kSetItems);
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  put(bytes_, Op::kGlobal);
  bytes_.append(module).append("\n").append(name).append("\n");
}

void PickleWriter::call(std::string_view module, std::string_view name, const Fill& arguments) {
  global(module, name);
  tuple(arguments);
  put(bytes_, Op::kReduce);
}

void PickleWriter::object(std::string_view module, std::string_view name, const Fill& state) {
  global(module, name);
  put(bytes_, Op::kEmptyTuple);
  put(bytes_, Op::kNewObj);
  state();
  put(bytes_, Op::kBuild);
}

void PickleWriter::persistent(const Fill& id) {
  tuple(id);
  put(bytes_, Op::kBinPersId);
}

void PickleWriter::numbers(const Shape& values) {
  tuple([&] {
    for (const int64_t v : values) integer(v);
  });
}

void PickleWriter::size(const Shape& values) {
  call("torch", "Size", [&] { numbers(values); });
}

}  // namespace weft
