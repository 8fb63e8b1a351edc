// text/tokenizer_json.cpp: tokenizer.json, as the tokenizers package writes it.
//
// Each part of the file is either implemented exactly or rejected by name.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "text/json_scan.h"
#include "text/tokenizer_parts.h"

namespace weft {
namespace {

void read_merges(JsonScan& scan, Bpe& bpe, const std::string& what) {
  scan.expect('[');
  for (bool first = true; scan.next(first, ']');) {
    if (!scan.take('[')) {
      add_merge_line(bpe, scan.string(), what);
      continue;
    }
    const std::string left(scan.string());
    scan.expect(',');
    add_merge(bpe, left, scan.string(), what);
    scan.expect(']');
  }
}

bool is_off(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json("") ||
         (value.is_number() && value.as_number() == 0);
}

// The model's small settings, and what is supported of each.
void check_bpe_settings(const Json& settings, const std::string& what, TokenizerParts& parts) {
  Bpe& bpe = *parts.bpe;
  bool byte_fallback = false, fuse_unk = false;
  int32_t unk_id = -1;
  for (const auto& [key, value] : settings.as_object()) {
    const std::string feature = fmt::format("model.{}: {}", key, value.dump());
    if (key == "type") continue;
    if (key == "fuse_unk") {
      fuse_unk = !is_off(value);
    } else if (key == "ignore_merges") {
      bpe.set_ignore_merges(value.as_bool());
    } else if (key == "unk_token" || key == "byte_fallback") {
      // Both concern characters outside the vocabulary; with all 256 bytes there are none.
      if (!parts.is_plain && !is_off(value) && !bpe.has_all_bytes())
        refuse_feature(what, feature + " with bytes that are not tokens",
                       "vocabularies with all 256 bytes");
      if (key == "byte_fallback") byte_fallback = !is_off(value);
      if (key == "unk_token" && !is_off(value)) unk_id = bpe.vocab().find_text(value.as_string());
    } else if (key == "dropout" || key == "continuing_subword_prefix" ||
               key == "end_of_word_suffix") {
      if (!is_off(value)) refuse_feature(what, feature, "null");
    } else {
      refuse_feature(what, feature,
                     "type, vocab, merges, ignore_merges, unk_token, byte_fallback, fuse_unk");
    }
  }
  if (!parts.is_plain) return;
  for (int byte = 0; byte < 256 && byte_fallback; byte++)
    require(find_byte_token(bpe.vocab(), static_cast<unsigned char>(byte)) >= 0,
            "{}: byte_fallback without a token <0x{:02X}> is not supported", what, byte);
  bpe.set_characters(unk_id, fuse_unk, byte_fallback);
}

// [["piece", score], ...]; a piece's position is its id.
void read_unigram(JsonScan& scan, size_t num_bytes, const std::string& what, Vocab& vocab,
                  std::vector<double>& scores) {
  vocab.reserve(num_bytes / 30, num_bytes / 3);
  scan.expect('[');
  for (bool first = true; scan.next(first, ']');) {
    scan.expect('[');
    const std::string piece(scan.string());
    scan.expect(',');
    const std::string_view score = scan.raw_value();
    vocab.add(piece, static_cast<int64_t>(scores.size()), what);
    scores.push_back(parse_json(score, what + ": a score").as_number());
    scan.expect(']');
  }
  require(!scores.empty(), "{}: model.vocab is empty", what);
}

void finish_unigram(const Json& settings, const std::string& what, Vocab vocab,
                    std::vector<double> scores, TokenizerParts& parts) {
  int64_t unk_id = -1;
  bool byte_fallback = false;
  for (const auto& [key, value] : settings.as_object()) {
    if (key == "type") continue;
    if (key == "unk_id") {
      if (value.is_null()) refuse_feature(what, "model.unk_id: null", "the id of a piece");
      unk_id = value.as_int();
    } else if (key == "byte_fallback") {
      byte_fallback = !is_off(value);
    } else {
      refuse_feature(what, fmt::format("model.{}: {}", key, value.dump()),
                     "type, vocab, unk_id, byte_fallback");
    }
  }
  if (!parts.is_plain) refuse_feature(what, "a Unigram model of bytes", "one of characters");
  parts.unigram =
      std::make_unique<Unigram>(std::move(vocab), std::move(scores), unk_id, byte_fallback, what);
}

void read_model(JsonScan& scan, size_t num_bytes, const std::string& what, TokenizerParts& parts) {
  Json settings{Json::Object{}};
  std::string_view merges_before_vocab;
  bool has_merges = false;
  Vocab pieces(Vocab::Form::kPlain);
  std::vector<double> scores;
  scan.expect('{');
  for (bool first = true; scan.next(first, '}');) {
    const std::string key(scan.string());
    scan.expect(':');
    if (key == "vocab" && scan.peek() == '{') {
      require(!parts.bpe, "{}: duplicate model.vocab", what);
      const Vocab::Form form = parts.is_plain ? Vocab::Form::kPlain : Vocab::Form::kByteSymbols;
      parts.bpe = std::make_unique<Bpe>(read_vocab(scan, num_bytes / 3, form, what));
      parts.bpe->reserve(parts.bpe->vocab().size());
    } else if (key == "vocab" && scan.peek() == '[') {
      require(scores.empty(), "{}: duplicate model.vocab", what);
      read_unigram(scan, num_bytes, what, pieces, scores);
    } else if (key == "merges") {
      require(!has_merges, "{}: duplicate model.merges", what);
      has_merges = true;
      if (parts.bpe)
        read_merges(scan, *parts.bpe, what);
      else
        merges_before_vocab = scan.raw_value();
    } else {
      const std::string_view raw = scan.raw_value();
      if (key != "vocab") settings.set(key, parse_json(raw, what + ": model." + key));
    }
  }
  const Json* type = settings.find("type");
  if (type && *type != Json("BPE") && *type != Json("Unigram"))
    refuse_feature(what, fmt::format("the model {}", type->dump()), "\"BPE\", \"Unigram\"");
  if (type && parts.bpe && *type != Json("BPE"))
    refuse_feature(what, fmt::format("the model {} with a vocabulary of ids", type->dump()), "BPE");
  if (!scores.empty() && !parts.bpe)
    return finish_unigram(settings, what, std::move(pieces), std::move(scores), parts);
  require(parts.bpe != nullptr && scores.empty(),
          "{}: model.vocab is not an object of tokens and ids", what);
  if (!merges_before_vocab.empty()) {
    JsonScan merges(merges_before_vocab, what + ": model.merges");
    read_merges(merges, *parts.bpe, what);
  }
  check_bpe_settings(settings, what, parts);
}

}  // namespace

void check_added_id(const std::string& content, int64_t id, const std::string& what) {
  require(id >= 0, "{}: the added token '{}' has the id {}; ids start at 0", what, content, id);
}

AddedToken read_added_token(const Json& json, const std::string& what) {
  require(json.is_object(), "{}: an added token is {}, wanted an object", what, json.kind());
  AddedToken token;
  token.content = json.at("content").as_string();
  token.special = flag_of_part(json, "special", false);
  token.normalized = flag_of_part(json, "normalized", !token.special);
  token.single_word = flag_of_part(json, "single_word", false);
  token.lstrip = flag_of_part(json, "lstrip", false);
  token.rstrip = flag_of_part(json, "rstrip", false);
  return token;
}

void read_tokenizer_json(std::string_view text, const std::string& what, TokenizerParts& parts) {
  static constexpr std::string_view kKeys[] = {"version",        "truncation", "padding",
                                               "added_tokens",   "normalizer", "pre_tokenizer",
                                               "post_processor", "decoder"};
  Json rest{Json::Object{}};
  std::string_view model;  // read last: the other parts decide what its tokens are
  JsonScan scan(text, what);
  scan.expect('{');
  for (bool first = true; scan.next(first, '}');) {
    const std::string key(scan.string());
    scan.expect(':');
    if (key == "model" && scan.peek() == '{') {
      require(model.empty(), "{}: duplicate \"model\"", what);
      model = scan.raw_value();
      continue;
    }
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
      refuse_feature(what, fmt::format("the entry \"{}\"", key),
                     fmt::format("model, {}", fmt::join(kKeys, ", ")));
    rest.set(key, parse_json(scan.raw_value(), what + ": " + key));
  }
  scan.expect_end();
  require(!model.empty(), "{}: there is no \"model\"", what);
  const auto part = [&rest](std::string_view key) {
    const Json* found = rest.find(key);
    return found ? *found : Json();
  };
  read_normalizer(part("normalizer"), what, parts);
  read_pre_tokenizer(part("pre_tokenizer"), what, parts);
  read_decoder(part("decoder"), what, parts);
  JsonScan model_scan(model, what);
  read_model(model_scan, model.size(), what, parts);
  read_post_processor(part("post_processor"), what, parts);
  parts.is_described = true;
  parts.has_post_processor = !part("post_processor").is_null();
  if (part("added_tokens").is_null()) return;
  for (const Json& json : rest.at("added_tokens").as_array()) {
    AddedToken token = read_added_token(json, what);
    const int64_t id = json.at("id").as_int();
    check_added_id(token.content, id, what);
    parts.add_token(std::move(token), id, what);
  }
}

}  // namespace weft
