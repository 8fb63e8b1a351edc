// tests/text/chat_test.cpp: turns of ChatML, and which tokens are the assistant's.
#include "text/chat.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/text/tokenizer_fixture.h"

namespace weft {
namespace {

std::unique_ptr<Tokenizer> chat_tokenizer(const std::string& chat_template) {
  Json json =
      test::small_tokenizer({{"\xC4\x8A", "\xC4\x8A"}});  // two line ends are one token: 256
  test::entry(json, "pre_tokenizer").set("use_regex", false);
  json.set("added_tokens", Json::Array{test::added_token("<|im_start|>", 257),
                                       test::added_token("<|im_end|>", 258)});
  Json config{Json::Object{{"eos_token", "<|im_end|>"}}};
  if (!chat_template.empty()) config.set("chat_template", chat_template);
  return test::load(json, config);
}

struct Turned {
  std::string text, labels;
};

Turned turn(const std::string& chat_template, const std::string& messages) {
  const auto t = chat_tokenizer(chat_template);
  std::vector<int32_t> ids;
  std::vector<uint8_t> is_label;
  ChatTemplate(*t).encode(parse_json(messages, "m"), "row 1", ids, is_label);
  EXPECT_EQ(ids.size(), is_label.size());
  std::vector<int32_t> labels;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (is_label[i]) labels.push_back(ids[i]);
  }
  return {t->decode(ids, false), t->decode(labels, false)};
}

TEST(Chat, LossOnTheAssistantOnly) {
  const Turned t = turn("", R"([{"role":"system","content":"Be."},{"role":"user","content":"Hi"},
      {"role":"assistant","content":"Yes"},{"role":"user","content":"Go"},{"role":"assistant","content":"No"}])");
  EXPECT_EQ(
      t.text,
      "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
      "Yes<|im_end|>\n<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\nNo<|im_end|>\n");
  EXPECT_EQ(t.labels, "Yes<|im_end|>No<|im_end|>");
}

TEST(Chat, ATokenAcrossTheHeadIsALabel) {
  const Turned t = turn("", R"([{"role":"assistant","content":"\nx"}])");
  EXPECT_EQ(t.text, "<|im_start|>assistant\n\nx<|im_end|>\n");
  EXPECT_EQ(t.labels, "\n\nx<|im_end|>");
}

TEST(Chat, TheTemplateMayAddASystemTurn) {
  const std::string speaks =
      "{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{%- for message in messages %}";
  EXPECT_EQ(turn(speaks, R"([{"role":"user","content":"Hi"}])").text,
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(turn(speaks, R"([{"role":"system","content":"S"}])").text,
            "<|im_start|>system\nS<|im_end|>\n");
}

// Some templates skip an empty assistant turn; none skips a user's.
TEST(Chat, AnEmptyAnswerIsSkippedWhereTheTemplateDoes) {
  const std::string skips = "<|im_start|>{% if message['content'] %}", plain = "<|im_start|>";
  const std::string messages =
      R"([{"role":"user","content":""},{"role":"assistant","content":""},{"role":"assistant","content":"x"}])";
  const std::string user = "<|im_start|>user\n<|im_end|>\n";
  const std::string empty = "<|im_start|>assistant\n<|im_end|>\n";
  const std::string last = "<|im_start|>assistant\nx<|im_end|>\n";
  EXPECT_EQ(turn(skips, messages).text, user + last);
  EXPECT_EQ(turn(skips, messages).labels, "x<|im_end|>");
  EXPECT_EQ(turn(plain, messages).text, user + empty + last);
  EXPECT_EQ(turn(plain, messages).labels, "<|im_end|>x<|im_end|>");
}

TEST(Chat, BadConversationsAreRefused) {
  const auto refusal = [](const std::string& chat_template, const char* messages) -> std::string {
    try {
      turn(chat_template, messages);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal("", "{}").find("wanted a list of {role, content}"), std::string::npos);
  EXPECT_NE(refusal("", R"([{"from":"human","value":"Hi"}])")
                .find("a message is {from, value}, wanted {role, content}"),
            std::string::npos);
  EXPECT_NE(refusal("", "[1]").find("wanted an object"), std::string::npos);
  EXPECT_NE(refusal("", R"([{"role":"user"}])").find("\"content\""), std::string::npos);
  EXPECT_NE(refusal("", R"([{"role":"tool","content":""}])").find("'tool'"), std::string::npos);
  EXPECT_NE(refusal("[INST] {{ messages }}", "[]").find("not ChatML"), std::string::npos);
  const auto bytes = make_bytes_tokenizer();
  EXPECT_THROW(ChatTemplate{*bytes}, UserError);
}

}  // namespace
}  // namespace weft
