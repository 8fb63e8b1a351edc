// text/spiece.cpp: spiece.model, SentencePiece's protocol buffer, as transformers' T5Tokenizer
// reads it.
//
// Parsed by hand: a field is a tag (number << 3 | wire type) and a value; five field numbers
// suffice, and protobuf is not needed.
#include <cstring>
#include <memory>

#include "base/error.h"
#include "text/charsmap.h"
#include "text/tokenizer_parts.h"

namespace weft {
namespace {

class ProtoScan {
 public:
  ProtoScan(std::string_view bytes, const std::string& what) : bytes_(bytes), what_(what) {}

  // The next field: its number, and its value in number() or text().
  bool next(uint64_t& field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = varint();
    field = tag >> 3;
    switch (tag & 7) {
      case 0:
        number_ = varint();
        break;
      case 1:
        text_ = take(8);
        break;
      case 2:
        text_ = take(varint());
        break;
      case 5:
        text_ = take(4);
        break;
      default:
        throw UserError(fmt::format("{}: damaged at byte {}", what_, at_));
    }
    return true;
  }
  uint64_t number() const { return number_; }
  std::string_view text() const { return text_; }
  float real() const {
    require(text_.size() == 4, "{}: a score is not a float", what_);
    float value;
    std::memcpy(&value, text_.data(), 4);
    return value;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      require(at_ < bytes_.size(), "{}: the file is truncated", what_);
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    throw UserError(fmt::format("{}: damaged at byte {}", what_, at_));
  }
  std::string_view take(uint64_t size) {
    require(size <= bytes_.size() - at_, "{}: the file is truncated", what_);
    const std::string_view part = bytes_.substr(at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return part;
  }

  std::string_view bytes_;
  const std::string& what_;
  size_t at_ = 0;
  uint64_t number_ = 0;
  std::string_view text_;
};

enum PieceType : uint64_t { kNormal = 1, kControl = 3, kUserDefined = 4 };
constexpr uint64_t kUnigramModel = 1;

struct SpieceFile {
  Vocab vocab{Vocab::Form::kPlain};
  std::vector<double> scores;
  std::vector<AddedToken> added;
  std::string_view charsmap;
  uint64_t model_type = kUnigramModel, unk_id = 0;
  bool byte_fallback = false;
};

void read_piece(std::string_view bytes, const std::string& what, SpieceFile& file) {
  ProtoScan scan(bytes, what);
  std::string_view piece;
  double score = 0;
  uint64_t type = kNormal, field = 0;
  while (scan.next(field)) {
    if (field == 1) piece = scan.text();
    if (field == 2) score = double{scan.real()};
    if (field == 3) type = scan.number();
  }
  file.vocab.add(piece, static_cast<int64_t>(file.scores.size()), what);
  file.scores.push_back(score);
  if (type != kControl && type != kUserDefined) return;
  AddedToken token;
  token.content = piece;
  token.special = type == kControl;
  file.added.push_back(std::move(token));
}

void read_trainer(std::string_view bytes, const std::string& what, SpieceFile& file) {
  ProtoScan scan(bytes, what);
  uint64_t field = 0;
  while (scan.next(field)) {
    if (field == 3) file.model_type = scan.number();
    if (field == 35) file.byte_fallback = scan.number() != 0;
    if (field == 40) file.unk_id = scan.number();
  }
}

}  // namespace

void read_spiece(std::string_view bytes, int64_t num_extra_ids, const std::string& what,
                 TokenizerParts& parts) {
  SpieceFile file;
  file.vocab.reserve(bytes.size() / 20, bytes.size() / 2);
  ProtoScan scan(bytes, what);
  uint64_t field = 0;
  while (scan.next(field)) {
    if (field == 1) read_piece(scan.text(), what, file);
    if (field == 2) read_trainer(scan.text(), what, file);
    if (field != 3) continue;
    ProtoScan normalizer(scan.text(), what);
    while (normalizer.next(field)) {
      if (field == 2) file.charsmap = normalizer.text();
    }
    field = 3;
  }
  require(!file.scores.empty(), "{}: there are no pieces", what);
  if (file.model_type != kUnigramModel || file.byte_fallback)
    refuse_feature(what, file.byte_fallback ? "byte_fallback" : "a model that is not Unigram",
                   "T5's: Unigram without byte fallback");
  require(file.unk_id == 2, "{}: the unknown piece is {}; T5's is 2", what, file.unk_id);
  for (int64_t i = num_extra_ids; i-- > 0;) {
    file.vocab.add(fmt::format("<extra_id_{}>", i), static_cast<int64_t>(file.scores.size()), what);
    file.scores.push_back(0);
  }
  if (!file.charsmap.empty()) {
    const auto map = std::make_shared<const CharsMap>(file.charsmap, what);
    parts.normalizer.add("Precompiled", [map](std::string_view text) { return map->apply(text); });
  }
  parts.unigram =
      std::make_unique<Unigram>(std::move(file.vocab), std::move(file.scores), 2, false, what);
  parts.is_plain = true;
  parts.split.whitespace = parts.split.metaspace = true;
  parts.decode.marks = parts.decode.drop_first = true;
  for (AddedToken& token : file.added) parts.add_token(std::move(token), -1, what);
  for (int64_t i = num_extra_ids; i-- > 0;) {
    AddedToken token;
    token.content = fmt::format("<extra_id_{}>", i);
    token.special = true;
    parts.add_token(std::move(token), -1, what);
  }
}

}  // namespace weft
