// tests/text/bytes_tokenizer_test.cpp: every byte is an id, and decodes back.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/text/tokenizer_fixture.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace weft {
namespace {

using test::ids_of;

TEST(BytesTokenizer, IdIsByteAndEosIsMatched) {
  const auto t = make_bytes_tokenizer();
  EXPECT_EQ(ids_of(*t, "a\xC3\xA9"), (std::vector<int32_t>{97, 0xC3, 0xA9}));
  EXPECT_EQ(ids_of(*t, "a<|endoftext|>b"), (std::vector<int32_t>{97, 256, 98}));
  EXPECT_EQ(ids_of(*t, ""), std::vector<int32_t>{});
  EXPECT_EQ(t->num_ids(), 257);
  EXPECT_EQ(t->eos_id(), 256);
  EXPECT_EQ(t->pad_id(), 256);
  EXPECT_EQ(t->bos_id(), std::nullopt);
}

TEST(BytesTokenizer, DecodesAndRefusesForeignIds) {
  const auto t = make_bytes_tokenizer();
  const std::vector<int32_t> ids{104, 0xC3, 0xA9, 256, 0xC3};
  EXPECT_EQ(t->decode(ids, true), "h\xC3\xA9\xEF\xBF\xBD");
  EXPECT_EQ(t->decode(ids, false), "h\xC3\xA9<|endoftext|>\xEF\xBF\xBD");
  EXPECT_THROW(t->decode(std::vector<int32_t>{257}, true), UserError);
  EXPECT_THROW(t->decode(std::vector<int32_t>{-1}, true), UserError);
}

TEST(BytesTokenizer, StreamNeverEmitsHalfACharacter) {
  const auto t = make_bytes_tokenizer();
  const std::string text = "a\xF0\x9F\xA6\x99 \xC3\xA9<|endoftext|>z\xE2\x82";
  StreamDecoder stream(*t, false);
  std::string all;
  for (const int32_t id : ids_of(*t, text)) {
    std::string piece = stream.push(id);
    EXPECT_FALSE(repair_utf8(piece));
    all += piece;
  }
  all += stream.finish();
  EXPECT_EQ(all, t->decode(ids_of(*t, text), false));
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace weft
