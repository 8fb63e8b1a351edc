// text/bytes_tokenizer.cpp: the built-in tokenizer: a byte is its id, 256 ends a sequence.
#include <fmt/core.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace weft {
namespace {

constexpr std::string_view kEndText = "<|endoftext|>";
constexpr int32_t kEnd = 256;

class BytesTokenizer final : public Tokenizer {
 public:
  // The eos text is matched anywhere, as tokenizers does with an added token.
  void encode(std::string_view text, bool /*add_special*/,
              std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    while (true) {
      const size_t end = text.find(kEndText);
      for (const char c : text.substr(0, end)) ids.push_back(static_cast<unsigned char>(c));
      if (end == std::string_view::npos) return;
      ids.push_back(kEnd);
      text.remove_prefix(end + kEndText.size());
    }
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string out;
    out.reserve(ids.size());
    for (const int32_t id : ids)
      if (id != kEnd || !skip_special) out += token_bytes(id);
    repair_utf8(out);
    return out;
  }

  std::string decode_next(Decoding& state, int32_t id) const override {
    return decode_bytes_next(state, token_bytes(id));
  }
  std::string decode_end(Decoding& state) const override { return decode_bytes_end(state); }

  std::string token_bytes(int32_t id) const override {
    require(id >= 0 && id <= kEnd, "token id {} is not in the bytes tokenizer (0 to {})", id, kEnd);
    return id == kEnd ? std::string(kEndText) : std::string(1, static_cast<char>(id));
  }

  bool is_special(int32_t id) const override { return id == kEnd; }
  int32_t num_ids() const override { return kEnd + 1; }
  std::optional<int32_t> eos_id() const override { return kEnd; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> pad_id() const override { return kEnd; }
  uint64_t fingerprint() const override { return hash_text("weft bytes tokenizer 1"); }
  std::string describe() const override {
    return fmt::format("bytes, {} ids, eos = pad = {}", kEnd + 1, kEnd);
  }
  std::map<std::string, std::string> files() const override;
};

Json byte_level(bool is_pre_tokenizer) {
  Json::Object object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  object.emplace_back("use_regex", !is_pre_tokenizer);
  return object;
}

// A BPE model without merges, whose 256 symbols have the byte's value as id.
std::map<std::string, std::string> BytesTokenizer::files() const {
  Json::Object vocab;
  for (int byte = 0; byte < 256; byte++)
    vocab.emplace_back(byte_symbol(static_cast<unsigned char>(byte)), byte);
  Json::Object model{{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", false},
                     {"vocab", std::move(vocab)},
                     {"merges", Json::Array{}}};
  const Json::Object flags{{"content", kEndText}, {"single_word", false}, {"lstrip", false},
                           {"rstrip", false},     {"normalized", false},  {"special", true}};
  Json::Object added{{"id", kEnd}};
  added.insert(added.end(), flags.begin(), flags.end());
  const Json tokenizer(Json::Object{{"version", "1.0"},
                                    {"truncation", nullptr},
                                    {"padding", nullptr},
                                    {"added_tokens", Json::Array{added}},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", byte_level(true)},
                                    {"post_processor", nullptr},
                                    {"decoder", byte_level(false)},
                                    {"model", std::move(model)}});
  const Json config(
      Json::Object{{"added_tokens_decoder", Json::Object{{std::to_string(kEnd), flags}}},
                   {"clean_up_tokenization_spaces", false},
                   {"eos_token", kEndText},
                   {"pad_token", kEndText},
                   {"tokenizer_class", "PreTrainedTokenizerFast"}});
  return {{"tokenizer.json", tokenizer.dump(2)}, {"tokenizer_config.json", config.dump(2)}};
}

}  // namespace

std::unique_ptr<Tokenizer> make_bytes_tokenizer() { return std::make_unique<BytesTokenizer>(); }

}  // namespace weft
