// base/json.h: a JSON value, read with bounds and written so that equal text means equal bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

// Objects keep the order of their keys; the last value of a duplicate key wins.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  // An integer beyond the range of int64, kept as text: it is passed through, not computed with.
  struct LargeInt {
    std::string digits;
    bool operator==(const LargeInt&) const = default;
  };

  // What copies and destroys is defined in json.cpp: inlined, files that use JSON take a
  // quarter more time to compile.
  Json() = default;
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  Json(std::nullptr_t) {}
  Json(bool v) : value_(v) {}
  Json(double v) : value_(v) {}
  Json(int64_t v) : value_(v) {}
  Json(uint64_t v) : value_(static_cast<int64_t>(v)) {}
  Json(int v) : value_(int64_t{v}) {}
  Json(const char* v);
  Json(std::string v);
  Json(std::string_view v);
  Json(LargeInt v);
  Json(Array v);
  Json(Object v);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_large() const { return std::holds_alternative<LargeInt>(value_); }
  bool is_number() const {
    return is_int() || is_large() || std::holds_alternative<double>(value_);
  }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  const char* kind() const;  // "null", "bool", "int", "number", "string", "array", "object"

  // Typed access: UserError naming both kinds where the value has another type.
  bool as_bool() const;
  int64_t as_int() const;  // a double without a fraction is accepted
  double as_number() const;
  const std::string& large_digits() const;  // of one that is_large()
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;
  Array& as_array();
  Object& as_object();

  const Json* find(std::string_view key) const;  // null where absent or not an object
  const Json& at(std::string_view key) const;    // UserError naming the key where absent
  void set(std::string key, Json value);         // null becomes an object; replaces

  // Compact text; indent >= 0: one entry per line. NaN and infinity as null. Both ways of writing a
  // double read back to the same bits; the shortest, 0.3, is for files that people read.
  enum class Digits { k17, kShortest };
  std::string dump(int indent = -1, Digits digits = Digits::k17) const;

  bool operator==(const Json&) const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object, LargeInt> value_;
};

// Bounded: nesting over 256 levels is refused. UserError names `what` and the byte.
Json parse_json(std::string_view text, std::string_view what);

}  // namespace weft
