// text/tokenizer_json_parts.cpp: normalizer, pre-tokenizer, decoder and post-processor of
// tokenizer.json.
#include <fmt/core.h>

#include <memory>

#include "base/error.h"
#include "text/charsmap.h"
#include "text/normalize.h"
#include "text/tokenizer_parts.h"

namespace weft {
namespace {

constexpr std::string_view kFalcon[] = {"Punctuation", "ByteLevel", "Digits", "Split"};

// Replace of a string, or of the one regular expression that converters write.
void read_replace(const Json& json, const std::string& what, TokenizerParts& parts) {
  const Json& pattern = json.at("pattern");
  const std::string& to = json.at("content").as_string();
  const std::string name = fmt::format("Replace {} {}", pattern.dump(), to);
  if (const Json* from = pattern.find("String"); from && !from->as_string().empty()) {
    parts.normalizer.add_bounded(name, replace_step(from->as_string(), to));
  } else if (const Json* regex = pattern.find("Regex"); regex && *regex == Json(" {2,}")) {
    parts.normalizer.add_bounded(name, replace_blanks_step(to));
  } else {
    refuse_feature(what, fmt::format("the normalizer Replace of {}", pattern.dump()),
                   "a String, the Regex \" {2,}\"");
  }
}

void read_byte_level(const Json& json, bool after_split, const std::string& what,
                     TokenizerParts& parts) {
  parts.add_prefix_space = flag_of_part(json, "add_prefix_space", true);
  if (flag_of_part(json, "use_regex", true)) {
    if (after_split)
      refuse_feature(what, "ByteLevel with use_regex after a Split", "use_regex: false");
    parts.pattern = SplitPattern::kGpt2;
  } else if (after_split) {
    if (parts.add_prefix_space)
      refuse_feature(what, "ByteLevel with add_prefix_space after a Split",
                     "add_prefix_space: false");
  } else {
    parts.pattern = SplitPattern::kNone;
  }
}

void read_split(const Json& json, const std::string& what, TokenizerParts& parts) {
  const Json* regex = json.at("pattern").find("Regex");
  if (!regex)
    refuse_feature(what, fmt::format("the Split pattern {}", json.at("pattern").dump()), "Regex");
  const auto pattern = pattern_of_regex(regex->as_string());
  if (!pattern)
    refuse_feature(
        what, fmt::format("the Split pattern {}", regex->dump()),
        "the regular expressions of GPT-2, Qwen2, Llama-3 and BLOOM, character by character");
  // BLOOM's leaves text between two matches; the others leave none, so these two are equivalent.
  const std::string& behavior = json.at("behavior").as_string();
  const bool invert = flag_of_part(json, "invert", false);
  const bool is_removed = behavior == "Removed" && invert && *pattern != SplitPattern::kBloom;
  if (!(behavior == "Isolated" && !invert) && !is_removed)
    refuse_feature(what, fmt::format("Split with behavior {}, invert {}", behavior, invert),
                   "Isolated without invert, Removed with invert");
  parts.pattern = *pattern;
}

// Falcon's four steps exactly; false where the steps differ.
bool read_falcon(const Json::Array& steps, const std::string& what, TokenizerParts& parts) {
  if (steps.size() != std::size(kFalcon)) return false;
  for (size_t i = 0; i < steps.size(); i++)
    if (type_of_part(steps[i], what) != kFalcon[i]) return false;
  const Json &level = steps[1], &split = steps[3];
  const Json* regex = split.at("pattern").find("Regex");
  const bool same = steps[0].at("behavior") == Json("Contiguous") &&
                    !flag_of_part(level, "add_prefix_space", true) &&
                    flag_of_part(level, "use_regex", true) &&
                    !flag_of_part(steps[2], "individual_digits", false) && regex &&
                    *regex == Json("[0-9][0-9][0-9]") && split.at("behavior") == Json("Isolated") &&
                    !flag_of_part(split, "invert", false);
  if (!same) refuse_feature(what, "these settings of Falcon's pre-tokenizers", "Falcon's own");
  parts.pattern = SplitPattern::kFalcon;
  return true;
}

void read_metaspace(const Json& json, const std::string& what, TokenizerParts& parts) {
  if (json.at("replacement") != Json(kMark))
    refuse_feature(what, fmt::format("Metaspace with {}", json.at("replacement").dump()), kMark);
  using Prepend = PlainSplit::Prepend;
  parts.split.metaspace = true;
  parts.split.cut_at_marks = flag_of_part(json, "split", true);
  parts.split.prepend =
      flag_of_part(json, "add_prefix_space", true) ? Prepend::kAlways : Prepend::kNever;
  if (const Json* scheme = json.find("prepend_scheme")) {
    const std::string& name = scheme->as_string();
    if (name != "always" && name != "first" && name != "never")
      refuse_feature(what, "prepend_scheme " + name, "always, first, never");
    parts.split.prepend = name == "always"  ? Prepend::kAlways
                          : name == "first" ? Prepend::kFirst
                                            : Prepend::kNever;
  }
  if (parts.split.prepend == Prepend::kFirst && parts.split.whitespace)
    refuse_feature(what, "prepend_scheme first after WhitespaceSplit", "always, never");
}

void read_plain_step(const Json& step, const std::string& type, const std::string& what,
                     TokenizerParts& parts) {
  if (type == "Metaspace" && !parts.split.metaspace)
    read_metaspace(step, what, parts);
  else if (type == "WhitespaceSplit" && !parts.split.metaspace)
    parts.split.whitespace = true;
  else
    refuse_feature(what, fmt::format("the pre-tokenizer {} in this position", type),
                   "ByteLevel; Split and ByteLevel; Falcon's; WhitespaceSplit and Metaspace; null");
}

void read_template(const Json& json, const std::string& what, TokenizerParts& parts) {
  std::vector<int32_t> before, after;
  bool text_seen = false;
  for (const Json& item : json.at("single").as_array()) {
    if (const Json* sequence = item.find("Sequence")) {
      if (text_seen || sequence->at("id") != Json("A"))
        refuse_feature(what, "a template other than $A once", "TemplateProcessing with $A once");
      text_seen = true;
      continue;
    }
    const std::string& name = item.at("SpecialToken").at("id").as_string();
    const Json* special = json.at("special_tokens").find(name);
    require(special != nullptr, "{}: the template names {}, which special_tokens does not define",
            what, name);
    for (const Json& id : special->at("ids").as_array()) {
      const int64_t value = id.as_int();
      require(value >= 0 && value <= kMaxTokenId, "{}: the id of {} in the template is {}", what,
              name, value);
      (text_seen ? after : before).push_back(static_cast<int32_t>(value));
    }
  }
  if (!text_seen) refuse_feature(what, "a template without $A", "TemplateProcessing with $A once");
  parts.before.insert(parts.before.begin(), before.begin(), before.end());
  parts.after.insert(parts.after.end(), after.begin(), after.end());
}

// Pieces to text: a Metaspace, or Llama's list of steps in Llama's order.
void read_plain_decoder(const Json::Array& steps, const std::string& what, TokenizerParts& parts) {
  int stage = 0;
  for (const Json& step : steps) {
    const std::string type = type_of_part(step, what + ": decoder");
    int now = 9;
    if (type == "Metaspace" && steps.size() == 1 && step.at("replacement") == Json(kMark)) {
      const Json* scheme = step.find("prepend_scheme");
      parts.decode.marks = true;
      parts.decode.drop_first =
          scheme ? *scheme != Json("never") : flag_of_part(step, "add_prefix_space", true);
      now = 1;
    } else if (type == "Replace" && step.at("pattern").find("String") &&
               step.at("pattern").at("String") == Json(kMark) && step.at("content") == Json(" ")) {
      parts.decode.marks = true;
      now = 1;
    } else if (type == "ByteFallback") {
      parts.decode.byte_fallback = true;
      now = 2;
    } else if (type == "Fuse") {
      now = 3;
    } else if (type == "Strip" && stage == 3 && step.at("content") == Json(" ") &&
               step.at("stop") == Json(0)) {
      parts.decode.strip_start = step.at("start").as_int();
      now = 4;
    }
    if (now <= stage || now > 4)
      refuse_feature(what, fmt::format("the decoder {} in this position", step.dump()),
                     "ByteLevel; Metaspace; Replace, ByteFallback, Fuse, Strip in this order");
    stage = now;
  }
}

}  // namespace

void refuse_feature(const std::string& what, std::string_view feature, std::string_view known) {
  throw UserError(fmt::format("{}: {} is not supported; supported: {}", what, feature, known));
}

std::string type_of_part(const Json& json, const std::string& what) {
  const Json* type = json.find("type");
  require(type && type->is_string(), "{}: wanted an object with a \"type\", got {}", what,
          json.dump().substr(0, 80));
  return type->as_string();
}

bool flag_of_part(const Json& json, std::string_view key, bool absent) {
  const Json* value = json.find(key);
  return value ? value->as_bool() : absent;
}

void read_normalizer(const Json& json, const std::string& what, TokenizerParts& parts) {
  if (json.is_null()) return;
  const std::string type = type_of_part(json, what + ": normalizer");
  if (type == "NFC") {
    parts.normalizer.add(type, to_nfc);
  } else if (type == "NFKC") {
    parts.normalizer.add(type, to_nfkc);
  } else if (type == "Lowercase") {
    parts.normalizer.add(type, to_lower);
  } else if (type == "Prepend") {
    const std::string& prefix = json.at("prepend").as_string();
    parts.normalizer.add("Prepend " + prefix, prepend_step(prefix));
  } else if (type == "Replace") {
    read_replace(json, what, parts);
  } else if (type == "Strip") {
    const bool left = json.at("strip_left").as_bool(), right = json.at("strip_right").as_bool();
    parts.normalizer.add(fmt::format("Strip {} {}", left, right), strip_step(left, right));
  } else if (type == "Precompiled") {
    if (json.at("precompiled_charsmap").is_null()) return;
    const std::string blob = decode_base64(json.at("precompiled_charsmap").as_string(), what);
    if (blob.empty()) return;
    const auto map = std::make_shared<const CharsMap>(blob, what);
    parts.normalizer.add(type, [map](std::string_view text) { return map->apply(text); });
  } else if (type == "Sequence") {
    for (const Json& part : json.at("normalizers").as_array()) read_normalizer(part, what, parts);
  } else {
    refuse_feature(what, fmt::format("the normalizer {}", type),
                   "NFC, NFKC, Lowercase, Prepend, Replace, Strip, Precompiled, Sequence, null");
  }
}

void read_pre_tokenizer(const Json& json, const std::string& what, TokenizerParts& parts) {
  Json::Array steps{json};
  if (!json.is_null() && type_of_part(json, what + ": pre_tokenizer") == "Sequence")
    steps = json.at("pretokenizers").as_array();
  if (json.is_null()) steps.clear();
  if (read_falcon(steps, what + ": pre_tokenizer", parts)) return;
  bool split = false, byte_level = false;
  for (const Json& step : steps) {
    const std::string type = type_of_part(step, what + ": pre_tokenizer");
    const bool plain = parts.split.metaspace || parts.split.whitespace;
    if (type == "ByteLevel" && !byte_level && !plain) {
      read_byte_level(step, split, what, parts);
      byte_level = true;
    } else if (type == "Split" && !split && !byte_level && !plain) {
      read_split(step, what, parts);
      split = true;
    } else if (!split && !byte_level) {
      read_plain_step(step, type, what, parts);
    } else {
      refuse_feature(what, fmt::format("the pre-tokenizer {} in this position", type),
                     "ByteLevel; Sequence of Split and ByteLevel");
    }
  }
  if (split && !byte_level) refuse_feature(what, "a Split without ByteLevel", "byte-level BPE");
  parts.is_plain = !byte_level;
}

void read_decoder(const Json& json, const std::string& what, TokenizerParts& parts) {
  Json::Array steps{json};
  if (json.is_null()) steps.clear();
  if (!json.is_null() && type_of_part(json, what + ": decoder") == "Sequence")
    steps = json.at("decoders").as_array();
  const bool byte_level =
      steps.size() == 1 && type_of_part(steps[0], what + ": decoder") == "ByteLevel";
  if (byte_level && !parts.is_plain) return;
  if (byte_level || !parts.is_plain || steps.empty())
    refuse_feature(what,
                   fmt::format("the decoder {} with this pre-tokenizer", json.dump().substr(0, 80)),
                   "ByteLevel for bytes; Metaspace or Llama's Sequence for pieces of text");
  read_plain_decoder(steps, what, parts);
}

void read_post_processor(const Json& json, const std::string& what, TokenizerParts& parts) {
  if (json.is_null()) return;
  const std::string type = type_of_part(json, what + ": post_processor");
  if (type == "TemplateProcessing")
    read_template(json, what, parts);
  else if (type == "Sequence")
    for (const Json& part : json.at("processors").as_array())
      read_post_processor(part, what, parts);
  else if (type != "ByteLevel")  // which only moves offsets
    refuse_feature(what, fmt::format("the post-processor {}", type),
                   "TemplateProcessing, ByteLevel, Sequence, null");
}

}  // namespace weft
