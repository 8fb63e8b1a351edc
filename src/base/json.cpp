// base/json.cpp: nlohmann's parser drives; the value type is ours, so no header exposes the
// library.
#include "base/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace weft {
namespace {

constexpr size_t kMaxDepth = 256;

// Builds our value from the parser's events; open_ holds the containers not yet closed.
class JsonBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonBuilder(std::string_view what) : what_(what) {}
  Json take() { return std::move(root_); }

  bool null() override { return put(Json()); }
  bool boolean(bool v) override { return put(Json(v)); }
  bool number_integer(number_integer_t v) override { return put(Json(int64_t{v})); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<uint64_t>(INT64_MAX)) return put(Json(Json::LargeInt{std::to_string(v)}));
    return put(Json(static_cast<int64_t>(v)));
  }
  // Integers of more than 64 bits come here too.
  bool number_float(number_float_t v, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return put(Json(Json::LargeInt{text}));
    return put(Json(v));
  }
  bool string(string_t& v) override { return put(Json(std::move(v))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json(Json::Object{})); }
  bool start_array(size_t) override { return open(Json(Json::Array{})); }
  bool key(string_t& v) override {
    keys_.back() = std::move(v);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    throw UserError(fmt::format("{}: not valid JSON at byte {}", what_, byte),
                    "the file may be truncated; fetch or write it again");
  }

 private:
  bool open(Json v) {
    require(open_.size() < kMaxDepth, "{}: JSON nested deeper than {} levels", what_, kMaxDepth);
    open_.push_back(std::move(v));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Json done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return put(std::move(done));
  }
  bool put(Json v) {
    if (open_.empty()) {
      root_ = std::move(v);
    } else if (open_.back().is_array()) {
      open_.back().as_array().push_back(std::move(v));
    } else {
      // Appended without a search: large vocabularies are objects of 150,000 keys.
      open_.back().as_object().emplace_back(std::move(keys_.back()), std::move(v));
    }
    return true;
  }

  std::string_view what_;
  Json root_;
  std::vector<Json> open_;
  std::vector<std::string> keys_;
};

void dump_string(const std::string& text, std::string& out) {
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// 1.0 stays 1.0: strict readers (transformers 5) reject an int where a float is expected.
void dump_double(double v, Json::Digits digits, std::string& out) {
  if (!std::isfinite(v)) {
    out += "null";
    return;
  }
  const bool is_short = digits == Json::Digits::kShortest;
  const std::string text = is_short ? fmt::format("{}", v) : fmt::format("{:.17g}", v);
  out += text;
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

void dump_value(const Json& v, int indent, Json::Digits digits, int depth, std::string& out) {
  auto line = [&](int d) {
    if (indent >= 0)
      out.append("\n").append(static_cast<size_t>(indent) * static_cast<size_t>(d), ' ');
  };
  if (v.is_null()) {
    out += "null";
  } else if (v.is_bool()) {
    out += v.as_bool() ? "true" : "false";
  } else if (v.is_int()) {
    out += std::to_string(v.as_int());
  } else if (v.is_large()) {
    out += v.large_digits();
  } else if (v.is_number()) {
    dump_double(v.as_number(), digits, out);
  } else if (v.is_string()) {
    dump_string(v.as_string(), out);
  } else if (v.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& e : v.as_array()) {
      if (!first) out += indent >= 0 ? "," : ", ";
      first = false;
      line(depth + 1);
      dump_value(e, indent, digits, depth + 1, out);
    }
    if (!first) line(depth);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, e] : v.as_object()) {
      if (!first) out += indent >= 0 ? "," : ", ";
      first = false;
      line(depth + 1);
      dump_string(key, out);
      out += ": ";
      dump_value(e, indent, digits, depth + 1, out);
    }
    if (!first) line(depth);
    out += '}';
  }
}

}  // namespace

Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
Json::Json(const char* v) : value_(std::string(v)) {}
Json::Json(std::string v) : value_(std::move(v)) {}
Json::Json(std::string_view v) : value_(std::string(v)) {}
Json::Json(LargeInt v) : value_(std::move(v)) {}
Json::Json(Array v) : value_(std::move(v)) {}
Json::Json(Object v) : value_(std::move(v)) {}
bool Json::operator==(const Json& other) const { return value_ == other.value_; }

const char* Json::kind() const {
  if (is_int()) return "int";
  constexpr const char* kNames[] = {"null",   "bool",  "int",    "number",
                                    "string", "array", "object", "int"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  require(is_bool(), "wanted bool, got {}", kind());
  return std::get<bool>(value_);
}

int64_t Json::as_int() const {
  if (is_int()) return std::get<int64_t>(value_);
  require(is_number(), "wanted int, got {}", kind());
  require(!is_large(), "wanted an int of 64 bits, got {}", dump());
  const double v = std::get<double>(value_);
  require(v == std::floor(v) && std::abs(v) < 9e15, "wanted int, got {}", v);
  return static_cast<int64_t>(v);
}

double Json::as_number() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (is_large()) return std::stod(large_digits());
  require(is_number(), "wanted number, got {}", kind());
  return std::get<double>(value_);
}

const std::string& Json::large_digits() const { return std::get<LargeInt>(value_).digits; }

const std::string& Json::as_string() const {
  require(is_string(), "wanted string, got {}", kind());
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  require(is_array(), "wanted array, got {}", kind());
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  require(is_object(), "wanted object, got {}", kind());
  return std::get<Object>(value_);
}

Json::Array& Json::as_array() { return const_cast<Array&>(std::as_const(*this).as_array()); }
Json::Object& Json::as_object() { return const_cast<Object&>(std::as_const(*this).as_object()); }

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& entries = std::get<Object>(value_);
  for (size_t i = entries.size(); i-- > 0;) {
    if (entries[i].first == key) return &entries[i].second;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  require(found != nullptr, "key \"{}\" is missing", key);
  return *found;
}

void Json::set(std::string key, Json value) {
  if (is_null()) value_ = Object{};
  if (const Json* found = find(key)) {
    *const_cast<Json*>(found) = std::move(value);
  } else {
    as_object().emplace_back(std::move(key), std::move(value));
  }
}

std::string Json::dump(int indent, Digits digits) const {
  std::string out;
  dump_value(*this, indent, digits, 0, out);
  return out;
}

Json parse_json(std::string_view text, std::string_view what) {
  JsonBuilder builder(what);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace weft
