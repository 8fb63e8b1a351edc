// text/tokenizer_json.cpp: tokenizer.json, as the tokenizers package writes it.
//
// What a part of the file says is either understood to the letter or refused by its name.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "text/bpe_tokenizer.h"
#include "text/json_scan.h"

namespace weft {
namespace {

[[noreturn]] void refuse(const std::string& what, std::string_view feature,
                         std::string_view known) {
  throw UserError(
      fmt::format("{}: {} is not known to this program; known: {}", what, feature, known));
}

std::string type_of(const Json& json, const std::string& what) {
  const Json* type = json.find("type");
  require(type && type->is_string(), "{}: an object with a \"type\" is wanted, got {}", what,
          json.dump().substr(0, 80));
  return type->as_string();
}

bool flag_of(const Json& json, std::string_view key, bool absent) {
  const Json* value = json.find(key);
  return value ? value->as_bool() : absent;
}

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

// The small settings of the model, each with what this program can do about it.
void check_model_settings(const Json& settings, const std::string& what, Bpe& bpe) {
  if (const Json* type = settings.find("type"); type && *type != Json("BPE"))
    refuse(what, fmt::format("the model {}", type->dump()), "\"BPE\"");
  for (const auto& [key, value] : settings.as_object()) {
    const std::string feature = fmt::format("model.{}: {}", key, value.dump());
    if (key == "type" || key == "fuse_unk") continue;
    if (key == "ignore_merges") {
      bpe.set_ignore_merges(value.as_bool());
    } else if (key == "unk_token" || key == "byte_fallback") {
      // Both are about characters that are not in the vocabulary; with all bytes there are none.
      if (!is_off(value) && !bpe.has_all_bytes())
        refuse(what, feature + " with bytes that are no token", "vocabularies with all 256 bytes");
    } else if (key == "dropout" || key == "continuing_subword_prefix" ||
               key == "end_of_word_suffix") {
      if (!is_off(value)) refuse(what, feature, "null");
    } else {
      refuse(what, feature,
             "type, vocab, merges, ignore_merges, unk_token, byte_fallback, fuse_unk");
    }
  }
}

void read_model(JsonScan& scan, size_t num_bytes, const std::string& what, TokenizerParts& parts) {
  Json settings{Json::Object{}};
  std::string_view merges_before_vocab;
  bool has_merges = false;
  scan.expect('{');
  for (bool first = true; scan.next(first, '}');) {
    const std::string key(scan.string());
    scan.expect(':');
    if (key == "vocab" && scan.peek() == '{') {
      require(!parts.bpe, "{}: model.vocab is there twice", what);
      parts.bpe = std::make_unique<Bpe>(read_vocab(scan, num_bytes / 3, what));
      parts.bpe->reserve(parts.bpe->vocab().size());
    } else if (key == "merges") {
      require(!has_merges, "{}: model.merges is there twice", what);
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
  if (!parts.bpe) {
    const Json* type = settings.find("type");
    if (type && *type != Json("BPE"))
      refuse(what, fmt::format("the model {}", type->dump()), "\"BPE\"");
    throw UserError(fmt::format("{}: model.vocab is no object of tokens and ids", what));
  }
  if (!merges_before_vocab.empty()) {
    JsonScan merges(merges_before_vocab, what + ": model.merges");
    read_merges(merges, *parts.bpe, what);
  }
  check_model_settings(settings, what, *parts.bpe);
}

void read_normalizer(const Json& json, const std::string& what, TokenizerParts& parts) {
  if (json.is_null()) return;
  const std::string type = type_of(json, what + ": normalizer");
  if (type == "NFC")
    parts.nfc = true;
  else if (type == "Sequence")
    for (const Json& part : json.at("normalizers").as_array()) read_normalizer(part, what, parts);
  else
    refuse(what, fmt::format("the normalizer {}", type), "NFC, Sequence, null");
}

void read_byte_level(const Json& json, bool after_split, const std::string& what,
                     TokenizerParts& parts) {
  parts.add_prefix_space = flag_of(json, "add_prefix_space", true);
  if (flag_of(json, "use_regex", true)) {
    if (after_split) refuse(what, "ByteLevel with use_regex after a Split", "use_regex: false");
    parts.pattern = SplitPattern::kGpt2;
  } else if (after_split) {
    if (parts.add_prefix_space)
      refuse(what, "ByteLevel with add_prefix_space after a Split", "add_prefix_space: false");
  } else {
    parts.pattern = SplitPattern::kNone;
  }
}

void read_split(const Json& json, const std::string& what, TokenizerParts& parts) {
  const Json* regex = json.at("pattern").find("Regex");
  if (!regex) refuse(what, fmt::format("the Split pattern {}", json.at("pattern").dump()), "Regex");
  const auto pattern = pattern_of_regex(regex->as_string());
  if (!pattern)
    refuse(what, fmt::format("the Split pattern {}", regex->dump()),
           "the regular expressions of GPT-2, Qwen2 and Llama-3, character by character");
  // The patterns leave nothing between two matches, so these two say the same.
  const std::string& behavior = json.at("behavior").as_string();
  const bool invert = flag_of(json, "invert", false);
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert))
    refuse(what, fmt::format("Split with behavior {}, invert {}", behavior, invert),
           "Isolated without invert, Removed with invert");
  parts.pattern = *pattern;
}

void read_pre_tokenizer(const Json& json, const std::string& what, TokenizerParts& parts) {
  Json::Array steps{json};
  if (!json.is_null() && type_of(json, what + ": pre_tokenizer") == "Sequence")
    steps = json.at("pretokenizers").as_array();
  bool split = false, byte_level = false;
  for (const Json& step : steps) {
    const std::string type = step.is_null() ? "null" : type_of(step, what + ": pre_tokenizer");
    if (type == "ByteLevel" && !byte_level) {
      read_byte_level(step, split, what, parts);
      byte_level = true;
    } else if (type == "Split" && !split && !byte_level) {
      read_split(step, what, parts);
      split = true;
    } else {
      refuse(what, fmt::format("the pre-tokenizer {} at this place", type),
             "ByteLevel; Sequence of Split and ByteLevel");
    }
  }
  if (!byte_level) refuse(what, "a pre-tokenizer without ByteLevel", "byte-level BPE");
}

void read_decoder(const Json& json, const std::string& what) {
  const std::string type = json.is_null() ? "null" : type_of(json, what + ": decoder");
  if (type == "Sequence" && json.at("decoders").as_array().size() == 1)
    read_decoder(json.at("decoders").as_array()[0], what);
  else if (type != "ByteLevel")
    refuse(what, fmt::format("the decoder {}", type), "ByteLevel");
}

void read_template(const Json& json, const std::string& what, TokenizerParts& parts) {
  std::vector<int32_t> before, after;
  bool text_seen = false;
  for (const Json& item : json.at("single").as_array()) {
    if (const Json* sequence = item.find("Sequence")) {
      if (text_seen || sequence->at("id") != Json("A"))
        refuse(what, "a template other than $A once", "TemplateProcessing with $A once");
      text_seen = true;
      continue;
    }
    const std::string& name = item.at("SpecialToken").at("id").as_string();
    for (const Json& id : json.at("special_tokens").at(name).at("ids").as_array()) {
      const int64_t value = id.as_int();
      require(value >= 0 && value <= kMaxTokenId, "{}: the id of {} in the template is {}", what,
              name, value);
      (text_seen ? after : before).push_back(static_cast<int32_t>(value));
    }
  }
  if (!text_seen) refuse(what, "a template without $A", "TemplateProcessing with $A once");
  parts.before.insert(parts.before.begin(), before.begin(), before.end());
  parts.after.insert(parts.after.end(), after.begin(), after.end());
}

void read_post_processor(const Json& json, const std::string& what, TokenizerParts& parts) {
  if (json.is_null()) return;
  const std::string type = type_of(json, what + ": post_processor");
  if (type == "TemplateProcessing")
    read_template(json, what, parts);
  else if (type == "Sequence")
    for (const Json& part : json.at("processors").as_array())
      read_post_processor(part, what, parts);
  else if (type != "ByteLevel")  // which only moves offsets
    refuse(what, fmt::format("the post-processor {}", type),
           "TemplateProcessing, ByteLevel, Sequence, null");
}

}  // namespace

AddedToken read_added_token(const Json& json, const std::string& what) {
  require(json.is_object(), "{}: an added token is {}, an object is wanted", what, json.kind());
  AddedToken token;
  token.content = json.at("content").as_string();
  token.special = flag_of(json, "special", false);
  token.normalized = flag_of(json, "normalized", !token.special);
  token.single_word = flag_of(json, "single_word", false);
  token.lstrip = flag_of(json, "lstrip", false);
  token.rstrip = flag_of(json, "rstrip", false);
  return token;
}

void read_tokenizer_json(std::string_view text, const std::string& what, TokenizerParts& parts) {
  static constexpr std::string_view kKeys[] = {"version",        "truncation", "padding",
                                               "added_tokens",   "normalizer", "pre_tokenizer",
                                               "post_processor", "decoder"};
  Json rest{Json::Object{}};
  JsonScan scan(text, what);
  scan.expect('{');
  for (bool first = true; scan.next(first, '}');) {
    const std::string key(scan.string());
    scan.expect(':');
    if (key == "model" && scan.peek() == '{') {
      require(!parts.bpe, "{}: \"model\" is there twice", what);
      read_model(scan, text.size(), what, parts);
      continue;
    }
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
      refuse(what, fmt::format("the entry \"{}\"", key),
             fmt::format("model, {}", fmt::join(kKeys, ", ")));
    rest.set(key, parse_json(scan.raw_value(), what + ": " + key));
  }
  scan.expect_end();
  require(parts.bpe != nullptr, "{}: there is no \"model\"", what);
  const auto part = [&rest](std::string_view key) {
    const Json* found = rest.find(key);
    return found ? *found : Json();
  };
  read_normalizer(part("normalizer"), what, parts);
  read_pre_tokenizer(part("pre_tokenizer"), what, parts);
  read_decoder(part("decoder"), what);
  read_post_processor(part("post_processor"), what, parts);
  parts.has_post_processor = !part("post_processor").is_null();
  if (part("added_tokens").is_null()) return;
  for (const Json& json : rest.at("added_tokens").as_array())
    parts.add_token(read_added_token(json, what), json.at("id").as_int(), what);
}

}  // namespace weft
