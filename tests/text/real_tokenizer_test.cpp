// tests/text/real_tokenizer_test.cpp: GPT-2 and Qwen2 against reference vectors. Needs
// ../shared/data (tests/needs_shared.txt).
#include <gtest/gtest.h>

#include <thread>

#include "tests/text/tokenizer_fixture.h"
#include "text/chat.h"

namespace weft {
namespace {

using test::Ids;
using test::ids_of;
using test::kShared;

#define NEEDS_SHARED() \
  if (!std::filesystem::exists(kShared / "tokenizers")) GTEST_SKIP() << "needs " << kShared

std::vector<std::string> split_at(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t end; (end = text.find(separator, at)) != std::string::npos;
       at = end + separator.size())
    parts.push_back(text.substr(at, end - at));
  return parts;
}

void check_vectors(const std::string& folder, const std::string& name) {
  const auto t = load_tokenizer(kShared / "tokenizers" / folder);
  const std::filesystem::path vectors = kShared / "vectors/llama.cpp";
  const auto inputs = split_at(test::slurp(vectors / ("ggml-vocab-" + name + ".gguf.inp")),
                               "\n__ggml_vocab_test__\n");
  const auto outputs = split_at(test::slurp(vectors / ("ggml-vocab-" + name + ".gguf.out")), "\n");
  ASSERT_EQ(inputs.size(), 46u);
  ASSERT_EQ(outputs.size(), 46u);
  for (size_t i = 0; i < inputs.size(); i++) {
    std::istringstream line(outputs[i]);
    Ids expected;
    for (int32_t id; line >> id;) expected.push_back(id);
    const Ids ids = ids_of(*t, inputs[i], false);
    EXPECT_EQ(ids, expected) << inputs[i];
    if (folder == "gpt2") {
      EXPECT_EQ(t->decode(ids, false), inputs[i]);
    }
  }
}

TEST(RealTokenizer, VectorsOfGpt2) {
  NEEDS_SHARED();
  check_vectors("gpt2", "gpt-2");
}

TEST(RealTokenizer, VectorsOfQwen2) {
  NEEDS_SHARED();
  check_vectors("qwen2", "qwen2");
}

TEST(RealTokenizer, WikitextRoundTrips) {
  NEEDS_SHARED();
  const std::string text = test::slurp(kShared / "wikitext2/wiki.valid.raw");
  for (const char* name : {"gpt2", "qwen2"}) {
    const auto t = load_tokenizer(kShared / "tokenizers" / name);
    EXPECT_TRUE(t->decode(ids_of(*t, text, false), false) == text) << name;
  }
}

TEST(RealTokenizer, ThreadsAgree) {
  NEEDS_SHARED();
  const std::string text = test::slurp(kShared / "wikitext2/wiki.valid.raw").substr(0, 200000);
  const auto t = load_tokenizer(kShared / "tokenizers/gpt2");
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = ids_of(*t, text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, results[0]);
}

TEST(RealTokenizer, SpecialTokensOfQwen2) {
  NEEDS_SHARED();
  const auto t = load_tokenizer(kShared / "tokenizers/qwen2");
  EXPECT_EQ(t->eos_id(), 151643);
  EXPECT_EQ(t->pad_id(), 151643);
  EXPECT_EQ(t->bos_id(), std::nullopt);
  EXPECT_EQ(t->num_ids(), 151646);
  EXPECT_EQ(ids_of(*t, "<|im_start|>user\n"), (Ids{151644, 872, 198}));
  EXPECT_EQ(t->decode(Ids{151644, 872}, true), "user");
}

TEST(RealTokenizer, ChatTemplateOfQwen25) {
  NEEDS_SHARED();
  const auto read = [](const char* name) { return test::slurp(kShared / "tokenizers" / name); };
  const auto t =
      load_tokenizer_files({{"vocab.json", read("qwen2/vocab.json")},
                            {"merges.txt", read("qwen2/merges.txt")},
                            {"tokenizer_config.json", read("qwen2.5/tokenizer_config.json")}},
                           "qwen2.5");
  const ChatTemplate chat(*t);
  EXPECT_EQ(chat.known().name, "Qwen2.5 Instruct");
  const auto written = [&](const char* messages) {
    Ids ids;
    std::vector<uint8_t> is_label;
    chat.encode(parse_json(messages, "m"), "m", ids, is_label);
    return t->decode(ids, false);
  };
  EXPECT_EQ(written(R"([{"role":"user","content":"Hi"}])"),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            "assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(written(R"([{"role":"system","content":"S"}])"), "<|im_start|>system\nS<|im_end|>\n");
}

TEST(RealTokenizer, LongRuns) {
  NEEDS_SHARED();
  const auto t = load_tokenizer(kShared / "tokenizers/gpt2");
  for (const char* unit : {" ", "a", "=", "\xC3\xA9", "ab"}) {
    std::string text;
    while (text.size() < 200000) text += unit;
    EXPECT_TRUE(t->decode(ids_of(*t, text), false) == text) << unit;
  }
}

}  // namespace
}  // namespace weft
