// io/pickle_writer.h: Python values as a pickle, protocol 2: what torch's strict loader accepts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tensor/shape.h"

namespace weft {

// Each call appends one value; those with `fill` append what fill appends to them. A dict's entries
// are a key and a value each. Without a memo: a value that is used twice is written twice.
class PickleWriter {
 public:
  using Fill = std::function<void()>;

  void none();
  void boolean(bool value);
  void integer(int64_t value);
  void real(double value);
  void text(std::string_view value);  // UTF-8
  void tuple(const Fill& fill);
  void list(const Fill& fill);
  void dict(const Fill& fill);
  void global(std::string_view module, std::string_view name);
  // What a function or a class returns for these arguments.
  void call(std::string_view module, std::string_view name, const Fill& arguments);
  // An object made without arguments, whose state is the one value of `state`.
  void object(std::string_view module, std::string_view name, const Fill& state);
  void persistent(const Fill& id);  // a reference to something outside, by a tuple

  void numbers(const Shape& values);  // a tuple
  void size(const Shape& values);     // a torch.Size

  std::string finish() const { return "\x80\x02" + bytes_ + "."; }

 private:
  std::string bytes_;
};

}  // namespace weft
