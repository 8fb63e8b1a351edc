// text/bpe_tokenizer.h: the byte-level BPE tokenizer, put together from what the files say.
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
#include "text/split.h"
#include "text/tokenizer.h"

namespace weft {

// What the readers find out. A reader fills what its file says and leaves the rest.
struct TokenizerParts {
  std::unique_ptr<Bpe> bpe;
  SplitPattern pattern = SplitPattern::kGpt2;
  bool nfc = false;
  bool add_prefix_space = false;
  std::vector<AddedToken> added;
  std::vector<int32_t> before, after;  // ids around the text (post-processor)
  bool has_post_processor = false;
  std::optional<int32_t> eos, bos, pad;
  std::map<std::string, std::string> files;

  int32_t find(std::string_view text) const;  // among added and vocabulary; -1: none
  // Adds or replaces; gives it the id that tokenizers would. UserError where `wanted_id` (-1: any)
  // is another.
  void add_token(AddedToken token, int64_t wanted_id, std::string_view what);
};

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerParts parts);

// Readers; `what` names the file in errors.
void read_tokenizer_json(std::string_view text, const std::string& what, TokenizerParts& parts);
void read_vocab_and_merges(std::string_view vocab, std::string_view merges,
                           const std::string& where, TokenizerParts& parts);
// tokenizer_config.json, special_tokens_map.json, added_tokens.json, each null where absent.
struct ConfigFiles {
  Json config, special_tokens, added_tokens;
};
void apply_tokenizer_config(const ConfigFiles& files, bool has_tokenizer_json,
                            const std::string& where, TokenizerParts& parts);

// Shared by the readers.
class JsonScan;
Vocab read_vocab(JsonScan& scan, size_t num_bytes, const std::string& what);
// "left right" or the two parts: a merge, its tokens looked up. UserError where one is no token.
void add_merge(Bpe& bpe, std::string_view left, std::string_view right, const std::string& what);
void add_merge_line(Bpe& bpe, std::string_view line, const std::string& what);
AddedToken read_added_token(const Json& json, const std::string& what);

}  // namespace weft
