// tests/text/chat_test.cpp: turns of ChatML, and which tokens are the assistant's.
#include "text/chat.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/text/tokenizer_fixture.h"

namespace weft {
namespace {

using Files = std::map<std::string, std::string>;

std::unique_ptr<Tokenizer> chat_tokenizer(const std::string& chat_template,
                                          const Files& more = {}) {
  Json json =
      test::small_tokenizer({{"\xC4\x8A", "\xC4\x8A"}});  // two line ends are one token: 256
  test::entry(json, "pre_tokenizer").set("use_regex", false);
  json.set("added_tokens", Json::Array{test::added_token("<|im_start|>", 257),
                                       test::added_token("<|im_end|>", 258)});
  Json config{Json::Object{{"eos_token", "<|im_end|>"}}};
  if (!chat_template.empty()) config.set("chat_template", chat_template);
  Files files = more;
  files.emplace("tokenizer.json", json.dump());
  files.emplace("tokenizer_config.json", config.dump());
  return load_tokenizer_files(std::move(files), "folder");
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

// A template is a text, the default of a list, or a separate file.
TEST(Chat, TheTemplateOfTheFilesIsFound) {
  const auto name_of = [](const Files& more) {
    const auto t = chat_tokenizer("", more);
    return std::string(ChatTemplate(*t).known().name);
  };
  const std::string plain(kPlainChatMl);
  EXPECT_EQ(name_of({}), "ChatML");
  EXPECT_EQ(name_of({{"chat_template.jinja", plain + "\n"}}), "ChatML");
  const Json one(Json::Object{{"name", "default"}, {"template", plain}});
  const Json other(Json::Object{{"name", "tool_use"}, {"template", "[INST]"}});
  const auto config = [](Json value) {
    return Json(Json::Object{{"eos_token", "<|im_end|>"}, {"chat_template", std::move(value)}})
        .dump();
  };
  EXPECT_EQ(name_of({{"tokenizer_config.json", config(Json::Array{other, one})}}), "ChatML");
  EXPECT_EQ(name_of({{"chat_template.json", config(plain)}}), "ChatML");
  const auto refusal = [&](const Files& files) -> std::string {
    try {
      return name_of(files);
    } catch (const UserError& e) {
      return e.what();
    }
  };
  EXPECT_NE(refusal({{"tokenizer_config.json", config(Json::Array{other})}})
                .find("the list has no template named \"default\""),
            std::string::npos);
  for (const std::string bad : {"chat_template.jinja", "chat_template.json"}) {
    const std::string text = plain + " ";
    const Files files{{bad, bad.ends_with("json") ? config(text) : text}};
    EXPECT_NE(refusal(files).find("the chat template of " + bad), std::string::npos);
  }
}

// Each of these templates contains ChatML's tokens but writes different text.
TEST(Chat, AnUnknownTemplateIsRefused) {
  const std::string plain(kPlainChatMl);
  for (const std::string& text :
       {plain + "<think>\n\n</think>", "<|im_start|>{{ message['role'] | upper }}" + plain,
        "{{ '<|im_start|>system\\nIt\\'s you.\\n<|im_end|>\\n' }}" + plain,
        std::string("<|im_start|>user<|im_sep|>")}) {
    try {
      turn(text, "[]");
      ADD_FAILURE() << text;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("the chat template of tokenizer_config.json (sha256 "),
                std::string::npos);
      EXPECT_NE(e.hint().find("data.source and data.target"), std::string::npos);
    }
  }
}

TEST(Chat, AnEmptyAnswerIsItsEnd) {
  const Turned t = turn("", R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(t.text, "<|im_start|>assistant\n<|im_end|>\n");
  EXPECT_EQ(t.labels, "<|im_end|>");
}

TEST(Chat, ATurnOfWeightZeroIsNotLearned) {
  const Turned t = turn(
      "",
      R"([{"role":"user","content":"a","weight":0},{"role":"assistant","content":"b","weight":0},
      {"role":"assistant","content":"c","weight":1},{"role":"assistant","content":"d","weight":null},
      {"role":"assistant","content":"e","weight":0.0}])");
  EXPECT_EQ(t.labels, "c<|im_end|>d<|im_end|>");
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
  EXPECT_NE(refusal("[INST] {{ messages }}", "[]").find("not supported"), std::string::npos);
  const auto message = [&](const char* more) {
    return refusal("", fmt::format(R"([{{"role":"user","content":"a",{}}}])", more).c_str());
  };
  EXPECT_NE(message(R"("name":"Ann")").find("a message has the key \"name\""), std::string::npos);
  EXPECT_NE(message(R"("tool_calls":[{}])").find("\"tool_calls\""), std::string::npos);
  EXPECT_NE(message(R"("reasoning_content":"so")").find("\"reasoning"), std::string::npos);
  EXPECT_EQ(message(R"("name":null,"tool_calls":[],"id":7)"), "");
  EXPECT_NE(message(R"("weight":1)").find("\"weight\" of a turn of role user is 1"),
            std::string::npos);
  EXPECT_NE(message(R"("weight":0.5)").find("is 0.5"), std::string::npos);
  const auto bytes = make_bytes_tokenizer();
  EXPECT_THROW(ChatTemplate{*bytes}, UserError);
}

}  // namespace
}  // namespace weft
