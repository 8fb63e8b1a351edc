// tests/train/generation_config_test.cpp: the tokens at which a trained model stops.
#include "train/generation_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"
#include "tests/text/tokenizer_fixture.h"
#include "tests/tiny_config.h"

namespace weft {
namespace {

class GenerationConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "model");
    write("model/config.json", testing::kTinyConfig);
    run_.model.path = (folder_ / "model").string();
    run_.model.init = "random";
    run_.data.tokenizer = "bytes";
    run_.data.seq_length = 16;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void set_config(const std::string& key, Json value) const {
    Json config = parse_json(testing::kTinyConfig, "config");
    config.set(key, std::move(value));
    write("model/config.json", config.dump(2));
  }
  // <|endoftext|> 256 ends sequences, <|im_end|> 258 turns.
  void use_chat() {
    Json json = test::small_tokenizer({});
    json.set("added_tokens", Json::Array{test::added_token("<|endoftext|>", 256),
                                         test::added_token("<|im_start|>", 257),
                                         test::added_token("<|im_end|>", 258)});
    write("model/tokenizer.json", json.dump());
    write("model/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    run_.data.tokenizer = "auto";
    run_.data.messages = "messages";
  }
  std::string config_eos() const {
    const Json config = saved_config(Session(run_));
    const Json* eos = config.find("eos_token_id");
    return eos ? eos->dump() : "none";
  }
  std::string generation() const { return saved_generation_config(Session(run_)).value_or("none"); }

  testing::TemporaryFolder folder_;
  RunConfig run_;
};

TEST_F(GenerationConfig, BytesFromRandomWeightsEndAtTheirOwnToken) {
  EXPECT_EQ(config_eos(), "256");
  EXPECT_EQ(generation(), "{\n  \"eos_token_id\": 256,\n  \"pad_token_id\": 256\n}\n");
  set_config("eos_token_id", 2);  // of another tokenizer: here it is a byte
  EXPECT_EQ(config_eos(), "256");
  write("model/generation_config.json", R"({"eos_token_id": [2, 3], "temperature": 0.6})");
  EXPECT_EQ(generation(), "{\n  \"eos_token_id\": 256,\n  \"temperature\": 0.6\n}\n");
}

TEST_F(GenerationConfig, TurnsEndInAdditionToTheConfigurationsOwn) {
  use_chat();
  set_config("eos_token_id", 256);
  EXPECT_EQ(config_eos(), "256");
  EXPECT_EQ(generation(), "{\n  \"eos_token_id\": [\n    256,\n    258\n  ]\n}\n");
  const std::string whole = R"({"do_sample": true, "eos_token_id": [258, 256], "top_k": 20})";
  write("model/generation_config.json", whole);
  EXPECT_EQ(generation(), whole) << "as it came: nothing is missing";
  write("model/generation_config.json", R"({"do_sample": true, "top_k": 20})");
  EXPECT_EQ(generation(),
            "{\n  \"do_sample\": true,\n  \"eos_token_id\": [\n    256,\n    258\n  ],\n"
            "  \"top_k\": 20\n}\n");
  run_.data.messages = "";  // text has no end
  write("model/generation_config.json", R"({"eos_token_id": 256})");
  EXPECT_EQ(generation(), R"({"eos_token_id": 256})");
}

TEST_F(GenerationConfig, NoFileWhereTheConfigSuffices) {
  use_chat();
  run_.data.messages = "";
  set_config("eos_token_id", 256);
  EXPECT_EQ(config_eos(), "256");
  EXPECT_EQ(generation(), "none");
}

TEST_F(GenerationConfig, InvalidFilesAreRejected) {
  for (const char* text : {"[]", "{", R"({"eos_token_id": "x"})"}) {
    write("model/generation_config.json", text);
    EXPECT_THROW(generation(), UserError) << text;
  }
}

}  // namespace
}  // namespace weft
