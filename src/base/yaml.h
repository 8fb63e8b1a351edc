// base/yaml.h: YAML text as a bounded tree that remembers its lines.
//
// The subset a run file needs: one document of maps with plain keys, lists and scalars, block or
// flow. Anchors, aliases and tags are refused: they let a small file mean a huge one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;
inline constexpr size_t kMaxYamlDepth = 64;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;             // of a scalar
  bool quoted = false;          // "5" is text, 5 is a number
  int line = 0;                 // from 1; of the key where the node is a map's value
  std::string key;              // where the node is a map's value
  std::vector<YamlNode> items;  // of a list or a map, in order

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }
  const YamlNode* find(std::string_view wanted) const;  // null where absent
};

// UserError with `source` and line where the text is not YAML, a key is duplicate, or a limit is
// exceeded. An empty text is null.
YamlNode parse_yaml(std::string_view text, std::string_view source);

// One scalar that parse_yaml (and any YAML reader) reads back as this text: plain where that is
// safe, in double quotes with escapes where not.
std::string yaml_scalar(std::string_view text);

// Whether the bytes are UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace weft
