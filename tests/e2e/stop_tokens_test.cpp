// tests/e2e/stop_tokens_test.cpp: a trained model stops where its answers ended, in every exported
// form.
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"
#include "tests/text/tokenizer_fixture.h"

namespace weft::testing {
namespace {

Json read_json(const std::filesystem::path& path) { return parse_json(slurp(path), path.string()); }

std::vector<int64_t> ids_of(const Ended& generated) {
  EXPECT_EQ(generated.exit_code, 0) << generated.err;
  std::vector<int64_t> ids;
  const Json answer = parse_json(generated.out, "generate");
  for (const Json& id : answer.at("ids").as_array()) ids.push_back(id.as_int());
  return ids;
}

// <|endoftext|> 256 ends sequences, <|im_end|> 258 turns.
TEST(StopTokens, AChatModelStopsAtTheEndOfItsTurn) {
  const TinyRun run;
  Json tokenizer = test::small_tokenizer({});
  tokenizer.set("added_tokens", Json::Array{test::added_token("<|endoftext|>", 256),
                                            test::added_token("<|im_start|>", 257),
                                            test::added_token("<|im_end|>", 258)});
  run.write("model/tokenizer.json", tokenizer.dump());
  run.write("model/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  run.write("model/generation_config.json", R"({"eos_token_id": 256, "top_k": 7})");
  std::string rows;
  for (int i = 0; i < 8; ++i) {
    rows += R"({"messages": [{"role": "user", "content": "Hi"},)"
            R"( {"role": "assistant", "content": "Yes"}]})"
            "\n";
  }
  run.write("chat.jsonl", rows);
  run.train_well({"data.train=[" + (run / "chat.jsonl").string() + "]", "data.messages=messages",
                  "data.tokenizer=auto", "data.seq_length=64", "train.steps=30",
                  "checkpoint.every=30", "train.micro_batch=8"});
  const auto final = run.dir() / "final", saved = run.checkpoint(30), exported = run / "exported";
  ASSERT_EQ(run_to_end({"export", saved.string(), exported.string()}).exit_code, 0);
  for (const auto& folder : {final, saved, exported}) {
    const Json made = read_json(folder / "generation_config.json");
    EXPECT_EQ(made.at("eos_token_id").dump(), "[256, 258]") << folder;
    EXPECT_EQ(made.at("top_k").as_int(), 7);
    EXPECT_EQ(read_json(folder / "config.json").at("eos_token_id").dump(), "256") << folder;
    const std::string prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    const Ended generated = run_to_end(
        {"generate", folder.string(), "--json", "--prompt", prompt, "--max-new-tokens", "20"});
    EXPECT_EQ(ids_of(generated), (std::vector<int64_t>{'Y', 'e', 's', 258})) << folder;
  }
}

TEST(StopTokens, BytesOfRandomWeightsNameTheirEnd) {
  const TinyRun run;
  run.write("pairs.jsonl", R"({"q": "a", "a": "b"})"
                           "\n");
  const std::vector<std::string> sets = {"data.train=[" + (run / "pairs.jsonl").string() + "]",
                                         "data.source={q}", "data.target={a}",
                                         "train.global_batch=1", "train.micro_batch=1"};
  run.train_well(sets);
  for (const auto& folder : {run.dir() / "final", run.checkpoint(6)}) {
    EXPECT_EQ(read_json(folder / "config.json").at("eos_token_id").as_int(), 256) << folder;
    const Json made = read_json(folder / "generation_config.json");
    EXPECT_EQ(made.at("eos_token_id").as_int(), 256);
    EXPECT_EQ(made.at("pad_token_id").as_int(), 256);
  }
  // Trained weights have learned what their configuration says; what this run adds comes in
  // addition.
  run.write("runs/tiny/final/generation_config.json", R"({"eos_token_id": 7, "top_p": 0.5})");
  std::vector<std::string> more = sets;
  more.insert(more.end(), {"name=more", "model.init=pretrained",
                           "model.path=" + (run.dir() / "final").string()});
  run.train_well(more);
  const Json made = read_json(run.dir("more") / "final/generation_config.json");
  EXPECT_EQ(made.at("eos_token_id").dump(), "[7, 256]");
  EXPECT_EQ(made.at("top_p").as_number(), 0.5);
}

}  // namespace
}  // namespace weft::testing
