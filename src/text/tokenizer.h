// text/tokenizer.h: text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace weft {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` (valid UTF-8), as tokenizers' encode does: added tokens are matched
  // first; add_special also applies the post-processor's template. Thread-safe.
  virtual void encode(std::string_view text, bool add_special, std::vector<int32_t>& ids) const = 0;
  // What add_special puts around a text.
  virtual std::span<const int32_t> ids_before() const { return {}; }
  virtual std::span<const int32_t> ids_after() const { return {}; }
  // Invalid UTF-8 becomes U+FFFD. An unknown id: UserError.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special) const = 0;
  // The same, id by id: the concatenated results for one state equal decode(). Text is emitted as
  // soon as later ids cannot change it.
  struct Decoding {
    std::string held;  // the beginning of a character
    bool begun = false;
  };
  virtual std::string decode_next(Decoding& state, int32_t id) const = 0;
  virtual std::string decode_end(Decoding& state) const = 0;
  // What one id stands for, for display (it may contain half a character).
  virtual std::string token_bytes(int32_t id) const = 0;
  // Whether decode(skip_special) omits it. False for an unknown id.
  virtual bool is_special(int32_t id) const = 0;

  virtual int32_t num_ids() const = 0;  // largest id + 1
  virtual std::optional<int32_t> eos_id() const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> pad_id() const = 0;
  virtual uint64_t fingerprint() const = 0;  // changes when the ids of any text could change
  virtual std::string describe() const = 0;  // one line: kind, size, special tokens

  // The files that make a folder's tokenizer, name to bytes: copied into final/ and checkpoints.
  virtual std::map<std::string, std::string> files() const = 0;
};

// decode_next and decode_end for tokenizers whose tokens are bytes.
std::string decode_bytes_next(Tokenizer::Decoding& state, std::string_view bytes);
std::string decode_bytes_end(Tokenizer::Decoding& state);

// The tokenizer of a Hugging Face folder: tokenizer.json; vocab.json + merges.txt; or spiece.model
// (T5's). UserError naming the expected files where there is none, or an unsupported feature.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

// The same from memory, name to bytes; `where` names the source in errors. Files that are not part
// of a tokenizer are ignored.
std::unique_ptr<Tokenizer> load_tokenizer_files(std::map<std::string, std::string> files,
                                                std::string_view where);

// Built in: id = byte value, 256 = end of sequence = padding. files() returns a tokenizer.json with
// which transformers produces the same ids.
std::unique_ptr<Tokenizer> make_bytes_tokenizer();

}  // namespace weft
