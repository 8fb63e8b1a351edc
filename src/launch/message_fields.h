// launch/message_fields.h: messages between supervisor and agents as JSON objects, read strictly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace weft {

// A JSON object of whose fields every one is asked for by name, type and range.
class MessageFields {
 public:
  MessageFields(std::string_view text, const char* what) : what_(what) {
    try {
      json_ = parse_json(text, what);
    } catch (const UserError& e) {
      throw PeerError(e.what());
    }
  }
  MessageFields(Json json, const char* what) : json_(std::move(json)), what_(what) {}
  const Json::Array& items(const char* key) const { return field(key, &Json::is_array).as_array(); }
  int64_t number(const char* key, int64_t least, int64_t most) const {
    const Json& found = field(key, &Json::is_int);
    const int64_t value = found.as_int();
    if (value < least || value > most) fail(key);
    return value;
  }
  bool flag(const char* key) const { return field(key, &Json::is_bool).as_bool(); }
  const std::string& text(const char* key) const {
    return field(key, &Json::is_string).as_string();
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    for (const Json& one : field(key, &Json::is_array).as_array())
      all.push_back(string_of(one, key));
    return all;
  }
  // At most that many, none below `least`.
  std::vector<int64_t> numbers(const char* key, int64_t least, size_t most) const {
    std::vector<int64_t> all;
    for (const Json& one : items(key)) {
      if (!one.is_int() || one.as_int() < least || all.size() == most) fail(key);
      all.push_back(one.as_int());
    }
    return all;
  }
  std::map<std::string, std::string> pairs(const char* key) const {
    std::map<std::string, std::string> all;
    for (const auto& [name, value] : field(key, &Json::is_object).as_object())
      all[name] = string_of(value, key);
    return all;
  }

 private:
  const Json& field(const char* key, bool (Json::*is_kind)() const) const {
    const Json* found = json_.find(key);
    if (found == nullptr || !(found->*is_kind)()) fail(key);
    return *found;
  }
  const std::string& string_of(const Json& value, const char* key) const {
    if (!value.is_string()) fail(key);
    return value.as_string();
  }
  [[noreturn]] void fail(const char* key) const {
    throw PeerError(fmt::format("{}: \"{}\" is missing or invalid", what_, key));
  }
  Json json_;
  const char* what_;
};

inline Json::Array array_of_numbers(const std::vector<int64_t>& numbers) {
  Json::Array all;
  for (const int64_t number : numbers) all.emplace_back(number);
  return all;
}

inline std::string dump_message(Json::Object object) { return Json(std::move(object)).dump(); }

// The beginning of a text; what is cut must stay valid UTF-8.
inline std::string shortened(const std::string& text, size_t most = 8 << 10) {
  size_t length = std::min<size_t>(text.size(), most);
  while (length < text.size() && length > 0 && (text[length] & 0xC0) == 0x80) --length;
  return text.substr(0, length);
}

}  // namespace weft
