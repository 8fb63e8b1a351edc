// cmd/tokenize.cpp: weft tokenize MODEL.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cmd/command.h"
#include "cmd/text_input.h"

namespace weft {
namespace {

struct TokenizeWords {
  std::string model, file, jsonl;
  std::optional<std::string> text;
  bool ids = false, decode = false, special = true;
};

std::string read_input(const TokenizeWords& o) {
  if (o.text) return repaired(*o.text, "--text");
  if (!o.file.empty()) return read_text_input(o.file);
  if (!o.jsonl.empty()) return read_text_input(o.jsonl);
  return read_standard_input();
}

std::vector<int32_t> parse_ids(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  const auto is_blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while ((at = std::find_if_not(at, end, is_blank)) != end) {
    const char* stop = std::find_if(at, end, is_blank);
    int32_t id = -1;
    const auto [rest, error] = std::from_chars(at, stop, id);
    require(error == std::errc() && rest == stop, "\"{}\" is not a token id",
            std::string_view(at, static_cast<size_t>(stop - at)));
    require(id >= 0 && id < tokenizer.num_ids(), "token id {} is not in this tokenizer (0 to {})",
            id, tokenizer.num_ids() - 1);
    ids.push_back(id);
    at = stop;
  }
  return ids;
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text, bool special) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, special, ids);
  return ids;
}

void print_ids(const std::vector<int32_t>& ids) { fmt::print("{}\n", fmt::join(ids, " ")); }

// An id, and its bytes as a JSON string: incomplete characters are shown as \xHH before it.
std::string shown_token(const std::string& bytes) {
  std::string copy = bytes;
  if (!repair_utf8(copy)) return printable_json(Json(copy).dump());
  std::string hex = "bytes";
  for (const char c : bytes) hex += fmt::format(" {:02x}", static_cast<unsigned char>(c));
  return hex;
}

void print_table(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    fmt::print("{:>8}  {}{}\n", id, shown_token(tokenizer.token_bytes(id)),
               tokenizer.is_special(id) ? "  special" : "");
  }
  fmt::print("{} tokens\n", ids.size());
}

// One JSON string per line to one line of ids each, or back.
void run_lines(const Tokenizer& tokenizer, const TokenizeWords& o, const std::string& text) {
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::string where = fmt::format("{} line {}", o.jsonl, ++number);
    if (o.decode) {
      const Json decoded(tokenizer.decode(parse_ids(line, tokenizer), false));
      fmt::print("{}\n", printable_json(decoded.dump()));
      continue;
    }
    const Json row = parse_json(line, where);
    require(row.is_string(), "{} holds {}, wanted a string", where, row.kind());
    const std::string row_text = repaired(row.as_string(), where);
    print_ids(encode(tokenizer, row_text, o.special));
  }
}

int run_tokenize(const TokenizeWords& o) {
  const auto tokenizer = open_tokenizer(
      o.model, "give a folder that has these files, or the word bytes: weft tokenize bytes ...");
  const std::string text = read_input(o);
  if (!o.jsonl.empty()) {
    run_lines(*tokenizer, o, text);
  } else if (o.decode) {
    const std::string decoded = tokenizer->decode(parse_ids(text, *tokenizer), false);
    fmt::print("{}\n", ::isatty(STDOUT_FILENO) ? printable(decoded) : decoded);
  } else if (o.ids) {
    print_ids(encode(*tokenizer, text, o.special));
  } else {
    print_table(*tokenizer, encode(*tokenizer, text, o.special));
  }
  return 0;
}

}  // namespace

RunCommand add_tokenize(CommandOptions& app) {
  const auto o = std::make_shared<TokenizeWords>();
  app.add_option("MODEL", o->model, "folder with tokenizer files, checkpoint, or bytes")
      ->required();
  auto* source = app.add_option_group("source", "default: standard input");
  source->add_option("--text", o->text, "the text, or with --decode the ids")->expected(0, 1);
  source->add_option("--file", o->file, "a file, read whole");
  source->add_option("--jsonl", o->jsonl, "a file with one JSON string per line; --decode: of ids");
  auto* ids = app.add_flag("--ids", o->ids, "print only ids, separated by blanks");
  app.add_flag("--decode", o->decode, "from ids to text")->excludes(ids);
  app.add_flag("!--no-special", o->special, "without the post-processor's tokens (bos, eos)");
  return [o] { return run_tokenize(*o); };
}

}  // namespace weft
