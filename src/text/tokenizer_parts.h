// text/tokenizer_parts.h: what the readers of tokenizer files collect, and the tokenizers built
// from it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/split.h"
#include "text/tokenizer.h"
#include "text/unigram.h"

namespace weft {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, which stands for a blank in pieces

// How text is split into words where tokens are not bytes.
struct PlainSplit {
  enum class Prepend { kNever, kFirst, kAlways };
  bool whitespace = false;  // words are separated by white space
  bool metaspace = false;   // blanks become marks, one is prepended, a word begins at each
  bool cut_at_marks = true;
  Prepend prepend = Prepend::kAlways;
};

// How pieces are decoded to text.
struct PlainDecode {
  bool marks = false;          // marks become blanks
  bool drop_first = false;     // ... and those of the first token are dropped
  bool byte_fallback = false;  // tokens <0xHH> are bytes
  int64_t strip_start = 0;     // blanks stripped from the beginning of the text
};

// A reader fills in what its file defines and leaves the rest.
struct TokenizerParts {
  std::unique_ptr<Bpe> bpe;          // one of the two
  std::unique_ptr<Unigram> unigram;  // always plain
  bool is_described = false;         // tokenizer.json has defined how to split
  bool is_plain = false;             // pieces are text, not bytes in GPT-2's alphabet
  SplitPattern pattern = SplitPattern::kGpt2;
  bool add_prefix_space = false;
  PlainSplit split;
  PlainDecode decode;
  Normalizer normalizer;
  std::vector<AddedToken> added;
  std::vector<int32_t> before, after;  // ids around the text (post-processor)
  bool has_post_processor = false;
  std::optional<int32_t> eos, bos, pad;
  std::map<std::string, std::string> files;

  const Vocab& vocab() const { return bpe ? bpe->vocab() : unigram->vocab(); }
  bool has_model() const { return bpe || unigram; }
  int32_t find(std::string_view text) const;  // among added and vocabulary; -1: none
  // Adds or replaces; assigns the id that tokenizers would. UserError where `wanted_id` (-1: any)
  // differs.
  void add_token(AddedToken token, int64_t wanted_id, std::string_view what);
};

// What both families share: added tokens, normalizer, templates.
class PartsTokenizer : public Tokenizer {
 public:
  explicit PartsTokenizer(TokenizerParts parts);

  void encode(std::string_view text, bool add_special, std::vector<int32_t>& ids) const final;
  std::span<const int32_t> ids_before() const final { return parts_.before; }
  std::span<const int32_t> ids_after() const final { return parts_.after; }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const final;
  bool is_special(int32_t id) const final;
  int32_t num_ids() const final { return num_ids_; }
  std::optional<int32_t> eos_id() const final { return parts_.eos; }
  std::optional<int32_t> bos_id() const final { return parts_.bos; }
  std::optional<int32_t> pad_id() const final { return parts_.pad; }
  uint64_t fingerprint() const final { return fingerprint_; }
  std::map<std::string, std::string> files() const final { return parts_.files; }

 protected:
  // Text without added tokens, normalized; is_first: it is at the start of the whole text.
  virtual void encode_words(std::string_view text, bool is_first,
                            std::vector<int32_t>& ids) const = 0;
  std::string_view text_of(int32_t id) const;  // as stored in the vocabulary; UserError
  std::string describe_special() const;        // ", 3 added tokens, eos </s> (1) ..."

  TokenizerParts parts_;
  std::map<int32_t, std::string> added_texts_;  // what added tokens decode to

 private:
  void encode_normalized(std::string_view text, bool is_first, std::vector<int32_t>& ids) const;

  AddedTokenFinder verbatim_, normalized_;
  std::vector<bool> special_;  // by id
  int32_t num_ids_;
  uint64_t fingerprint_;
};

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerParts parts);
std::unique_ptr<Tokenizer> make_plain_tokenizer(TokenizerParts parts);

// Readers; `what` names the file in errors.
void read_tokenizer_json(std::string_view text, const std::string& what, TokenizerParts& parts);
void read_vocab_and_merges(std::string_view vocab, std::string_view merges,
                           const std::string& where, TokenizerParts& parts);
// T5's spiece.model: the pieces, then num_extra_ids sentinels.
void read_spiece(std::string_view bytes, int64_t num_extra_ids, const std::string& what,
                 TokenizerParts& parts);
// tokenizer_config.json, special_tokens_map.json, added_tokens.json, each null where absent.
struct ConfigFiles {
  Json config, special_tokens, added_tokens;
};
void apply_tokenizer_config(const ConfigFiles& files, const std::string& where,
                            TokenizerParts& parts);
// The class of tokenizer_config.json without "Fast"; empty: not given.
std::string class_of(const Json& config);

// Shared by the readers.
class JsonScan;
Vocab read_vocab(JsonScan& scan, size_t num_bytes, Vocab::Form form, const std::string& what);
// "left right" or the two parts: a merge, its tokens looked up. UserError where one is not a token.
void add_merge(Bpe& bpe, std::string_view left, std::string_view right, const std::string& what);
void add_merge_line(Bpe& bpe, std::string_view line, const std::string& what);
AddedToken read_added_token(const Json& json, const std::string& what);
// UserError where a file gives an added token a negative id.
void check_added_id(const std::string& content, int64_t id, const std::string& what);
// Parts of tokenizer.json.
void read_normalizer(const Json& json, const std::string& what, TokenizerParts& parts);
void read_pre_tokenizer(const Json& json, const std::string& what, TokenizerParts& parts);
void read_decoder(const Json& json, const std::string& what, TokenizerParts& parts);
void read_post_processor(const Json& json, const std::string& what, TokenizerParts& parts);
[[noreturn]] void refuse_feature(const std::string& what, std::string_view feature,
                                 std::string_view known);
std::string type_of_part(const Json& json, const std::string& what);
bool flag_of_part(const Json& json, std::string_view key, bool absent);

}  // namespace weft
