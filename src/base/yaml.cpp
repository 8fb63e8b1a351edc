// base/yaml.cpp: yaml-cpp's parser drives; the tree is ours, so no header exposes the library.
#include "base/yaml.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <istream>
#include <streambuf>

#include "base/error.h"

namespace weft {
namespace {

constexpr const char* kQuoteStar = "text that begins with * needs quotes, as in [\"*\"]";

// Builds the tree from the parser's events; open_ holds the containers not yet closed.
class YamlBuilder : public YAML::EventHandler {
 public:
  explicit YamlBuilder(std::string_view source) : source_(source) {}
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    put(make(YamlNode::Kind::kNull, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, fmt::format("aliases (*name) are not supported; {}", kQuoteStar));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (tag != "?" && tag != "!" && !tag.empty()) fail(mark, "tags (!name) are not supported");
    YamlNode node = make(YamlNode::Kind::kScalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    put(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    bool has_key = false;
    std::string key;
    int key_line = 0;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message) const {
    throw UserError(fmt::format("{}:{}: {}", source_, mark.line + 1, message));
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) fail(mark, "anchors (&name) are not supported");
  }
  static YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    return node;
  }
  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    if (tag != "?" && tag != "!" && !tag.empty()) fail(mark, "tags (!name) are not supported");
    if (open_.size() >= kMaxYamlDepth) {
      fail(mark, fmt::format("nested deeper than {} levels", kMaxYamlDepth));
    }
    if (wants_key()) fail(mark, "a key must be plain text, got a list or a map");
    open_.push_back({make(kind, mark), false, "", 0});
  }
  void close() {
    YamlNode done = std::move(open_.back().node);
    open_.pop_back();
    put(std::move(done));
  }
  bool wants_key() const {
    return !open_.empty() && open_.back().node.is_map() && !open_.back().has_key;
  }
  void put(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.is_list()) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      take_key(parent, std::move(node));
    } else {
      node.key = std::move(parent.key);
      node.line = parent.key_line;
      parent.has_key = false;
      parent.node.items.push_back(std::move(node));
    }
  }
  void take_key(Open& parent, YamlNode node) {
    if (!node.is_scalar()) {
      throw UserError(fmt::format("{}:{}: a key must be plain text", source_, node.line));
    }
    if (const YamlNode* first = parent.node.find(node.text)) {
      throw UserError(fmt::format("{}:{}: duplicate key \"{}\", first on line {}", source_,
                                  node.line, node.text, first->line));
    }
    parent.has_key = true;
    parent.key = std::move(node.text);
    parent.key_line = node.line;
  }

  std::string_view source_;
  YamlNode root_;
  std::vector<Open> open_;
};

// Reads a string_view in place.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
};

// Words and forms that some YAML reader parses as something other than text.
bool is_safe_plain(std::string_view text) {
  static constexpr std::array kWords = {"true", "false", "yes", "no",  "on",  "off",
                                        "null", "y",     "n",   "nan", "inf", "infinity"};
  auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  auto is_path = [&] {
    return text.starts_with("/") || text.starts_with("./") || text.starts_with("../");
  };
  if (text.empty() || text.size() > 200 || !(is_letter(text[0]) || is_path())) return false;
  std::string lower;
  for (const char c : text) {
    if (!is_letter(c) && !std::isdigit(static_cast<unsigned char>(c)) && c != '_' && c != '.' &&
        c != '/' && c != '-') {
      return false;
    }
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return std::find(kWords.begin(), kWords.end(), lower) == kWords.end();
}

// Length of the UTF-8 character at the front, its code point in *point; 0 where it is not one.
size_t utf8_front(std::string_view s, uint32_t* point) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(s[i])); };
  const uint32_t first = byte(0);
  const size_t n = first < 0x80       ? 1
                   : first >> 5 == 6  ? 2
                   : first >> 4 == 14 ? 3
                   : first >> 3 == 30 ? 4
                                      : 0;
  if (n == 0 || s.size() < n) return 0;
  *point = n == 1 ? first : first & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    *point = *point << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = *point >= 0xd800 && *point < 0xe000;
  return *point < kLeast[n] || surrogate || *point > 0x10ffff ? 0 : n;
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view wanted) const {
  for (const YamlNode& item : items) {
    if (item.key == wanted) return &item;
  }
  return nullptr;
}

bool is_utf8(std::string_view bytes) {
  uint32_t point = 0;
  while (!bytes.empty()) {
    const size_t n = utf8_front(bytes, &point);
    if (n == 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

YamlNode parse_yaml(std::string_view text, std::string_view source) {
  require(text.size() <= kMaxYamlBytes, "{}: {} bytes of YAML, more than the {} allowed", source,
          text.size(), kMaxYamlBytes);
  require(is_utf8(text), "{}: not valid UTF-8 text", source);
  // A NUL byte in a value would truncate paths and numbers; yaml-cpp takes it for an escape.
  if (const size_t at = text.find('\0'); at != std::string_view::npos) {
    throw UserError(
        fmt::format("{}:{}: unexpected NUL byte", source,
                    1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(at), '\n')),
        "the file is damaged or is not a text file: write it again");
  }
  ViewBuffer buffer(text);
  std::istream stream(&buffer);
  YamlBuilder builder(source);
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    YamlNode root = builder.take();
    YamlBuilder second(source);
    require(!parser.HandleNextDocument(second), "{}: more than one YAML document", source);
    return root;
  } catch (const YAML::Exception& e) {
    // [*] and [*.txt]: a glob that YAML takes for the name of an anchor.
    const bool is_alias =
        e.msg.find("alias") != std::string::npos || e.msg.find("anchor") != std::string::npos;
    throw UserError(fmt::format("{}:{}: not valid YAML: {}{}{}", source, e.mark.line + 1, e.msg,
                                is_alias ? "; " : "", is_alias ? kQuoteStar : ""));
  }
}

std::string yaml_scalar(std::string_view text) {
  if (is_safe_plain(text)) return std::string(text);
  std::string out = "\"";
  while (!text.empty()) {
    uint32_t point = 0;
    const size_t n = utf8_front(text, &point);
    ensure(n > 0, "yaml_scalar needs UTF-8");
    if (point == '\n') {
      out += "\\n";
    } else if (point == '\t') {
      out += "\\t";
    } else if (point == '"' || point == '\\') {
      out += '\\';
      out += static_cast<char>(point);
    } else if (point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 ||
               point == 0x2029 || (point >= 0xfff0 && point <= 0xffff) || point == 0xfeff) {
      out += fmt::format("\\u{:04x}", point);
    } else {
      out.append(text.substr(0, n));
    }
    text.remove_prefix(n);
  }
  return out + '"';
}

}  // namespace weft
