// tests/e2e/families_test.cpp: BLOOM and T5 from the command line: layouts, resuming, final/, and
// mistakes.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "io/hf_folder.h"
#include "tests/e2e/tiny_run.h"
#include "tests/tiny_decoders.h"

namespace weft::testing {
namespace {

constexpr const char* kT5 = R"({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
  "is_encoder_decoder": true, "d_model": 32, "d_kv": 12, "d_ff": 56, "num_layers": 2, "num_heads": 4,
  "vocab_size": 260, "relative_attention_num_buckets": 8, "dropout_rate": 0.1, "pad_token_id": 0,
  "decoder_start_token_id": 3})";

class Family : public ::testing::TestWithParam<const char*> {
 protected:
  Family() {
    run_.write("model/config.json", is_t5() ? kT5 : kTinyBloom);
    std::string rows;
    for (int i = 0; i < 30; ++i) {
      const auto text = [i](int n) {
        return std::string(static_cast<size_t>(n), static_cast<char>('a' + i % 26));
      };
      rows += R"({"q": ")" + text(1 + i * 5 % 19) + R"(", "a": ")" + text(1 + i * 7 % 13) + "\"}\n";
    }
    run_.write("rows.jsonl", rows);
  }
  bool is_t5() const { return std::string(GetParam()) == "t5"; }

  Ended train(const std::vector<std::string>& sets,
              const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"data.train=" + (run_ / "rows.jsonl").string()};
    if (is_t5()) {
      all.insert(all.end(), {"data.source={q}", "data.target={a}", "data.target_length=12"});
    } else {
      all.push_back("data.text={q} {a}");
    }
    all.insert(all.end(), sets.begin(), sets.end());  // which win
    return run_.train(all, more);
  }
  void train_well(const std::vector<std::string>& sets) const {
    const Ended ended = train(sets);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  TinyRun run_;
};

TEST_P(Family, TrainsInEveryLayoutResumesAndIsReadBack) {
  const std::string exact = "parallel.mode=exact", eval = "data.eval_fraction=0.2";
  train_well({exact, eval, "name=one"});
  const std::string wanted = hash_of(run_.dir("one"));
  EXPECT_EQ(metric_texts(run_.dir("one"), "loss").size(), 6u);
  EXPECT_EQ(metric_texts(run_.dir("one"), "eval_loss").size(), 2u);
  train_well({exact, eval, "name=four", "parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"});
  EXPECT_EQ(hash_of(run_.dir("four")), wanted);
  train_well({exact, eval, "name=stopped", "train.steps=2", "parallel.tp=2"});
  train_well({exact, eval, "name=stopped", "parallel.dp=2", "parallel.shard=zero1"});
  EXPECT_EQ(hash_of(run_.dir("stopped")), wanted);
  // final/ is a folder to start from.
  const std::string path = "model.path=" + (run_.dir("one") / "final").string();
  train_well({path, "model.init=pretrained", "name=more", "train.steps=0", "data.tokenizer=auto"});
  EXPECT_EQ(hash_of(run_.dir("more") / "final"), hash_of(run_.dir("one") / "final"));
}

TEST_P(Family, FewerLayersAreInTheConfigOfFinal) {
  train_well({"model.num_layers=1", "train.steps=1"});
  const HfFolder folder(run_.dir() / "final");
  EXPECT_EQ(folder.config().at(is_t5() ? "num_layers" : "n_layer").as_int(), 1);
  EXPECT_EQ(folder.config().find("num_hidden_layers"), nullptr);
  train_well({"model.path=" + folder.path().string(), "model.init=pretrained", "name=more",
              "train.steps=1"});
}

INSTANTIATE_TEST_SUITE_P(All, Family, ::testing::Values("bloom", "t5"),
                         [](const auto& f) { return std::string(f.param); });

class T5 : public Family {};

TEST_P(T5, ShiftsTheAnswerByItsStartAndCountsCutRows) {
  const Ended ended = run_to_end(run_.words(
      "inspect",
      {"data.train=" + (run_ / "rows.jsonl").string(), "data.source={q}", "data.target={a}",
       "data.target_length=8", "data.shuffle=false", "train.global_batch=4"},
      {"--batches", "1", "--json"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json inspected = parse_json(ended.out, "inspect");
  const Json row = inspected.at("batches").as_array()[0].at("rows").as_array()[1];
  const auto ids = row.at("ids").as_array(), targets = row.at("targets").as_array();
  EXPECT_EQ(ids[0].as_int(), 3);
  for (size_t t = 1; t < ids.size(); ++t) EXPECT_EQ(ids[t], targets[t - 1]) << t;
  EXPECT_EQ(targets.back().as_int(), 256);  // the end is kept
  EXPECT_EQ(row.at("length").as_int(), 8);
  // Row i has an answer of 1 + 7i % 13 letters and an end: of the first four rows those of 8 and 9
  // letters are cut, of the first eight also those of 10 and 11.
  const Json& counts = inspected.at("counts");
  EXPECT_EQ(counts.at("truncated").as_int(), 2);
  EXPECT_EQ(counts.at("sources_cut").as_int(), 0);
  EXPECT_EQ(counts.at("targets_cut").as_int(), 2);
  const Ended trained = train({"data.target_length=8", "data.shuffle=false", "train.steps=1"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_TRUE(contains(trained.err + trained.out,
                       " 4 rows cut to data.seq_length or data.target_length (0 in the source, 4 "
                       "in the target)"))
      << trained.err;
}

TEST_P(T5, InFp16WarnsOfOverflow) {
  const auto run = [&](const std::string& precision) {
    return run_to_end(
        run_.words("train",
                   {"data.train=" + (run_ / "rows.jsonl").string(), "data.source={q}",
                    "data.target={a}", "data.target_length=12", "train.steps=1",
                    "launch.device=cpu", "train.precision=" + precision, "name=" + precision}),
        {.env = {{"WEFT_CPU_LEVEL", "ref"}}});  // the only CPU level with fp16
  };
  const Ended half = run("fp16"), brain = run("bf16");
  EXPECT_EQ(half.exit_code, 0) << half.err;
  EXPECT_EQ(brain.exit_code, 0) << brain.err;
  EXPECT_TRUE(contains(half.err, "t5 models have activations beyond fp16's largest")) << half.err;
  EXPECT_FALSE(contains(brain.err, "activations beyond")) << brain.err;
}

TEST_P(T5, HeadsOfItsOwnAreWrittenAndReadBack) {
  run_.change_config("tie_word_embeddings", false);
  train_well({"train.steps=1", "name=own"});
  const HfFolder own(run_.dir("own") / "final");
  EXPECT_NE(own.find("lm_head.weight").file, nullptr);
  train_well(
      {"model.path=" + own.path().string(), "model.init=pretrained", "name=more", "train.steps=0"});
  EXPECT_EQ(hash_of(run_.dir("more") / "final"), hash_of(own.path()));
  run_.change_config("tie_word_embeddings", true);
  train_well({"train.steps=1", "name=tied"});
  EXPECT_EQ(HfFolder(run_.dir("tied") / "final").find("lm_head.weight").file, nullptr);
}

// Answers in training, of `weft eval` and of `weft generate`, whose prompt is the source.
TEST_P(T5, AnswersItsQuestions) {
  const std::vector<std::string> pairs = {"data.eval_fraction=0.2", "eval.generate=4",
                                          "train.eval_every=3", "checkpoint.every=3"};
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"name=one"},
        {"name=four", "parallel.dp=2", "parallel.tp=2", "parallel.shard=zero1"}}) {
    std::vector<std::string> sets = pairs;
    sets.insert(sets.end(), layout.begin(), layout.end());
    train_well(sets);
  }
  for (const char* name : {"one", "four"})
    EXPECT_EQ(metric_texts(run_.dir(name), "exact_match").size(), 2u) << name;
  const auto generate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "generate", run_.dir("four").string(), "--json", "--prompt", "aaaa bbbb", "--threads",
        "1",        "--max-new-tokens",        "9"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run_to_end(words);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  };
  const std::string wanted = generate({});
  EXPECT_TRUE(contains(wanted, "\"ids\": [")) << wanted;
  EXPECT_EQ(generate({"--set", "parallel.tp=2"}), wanted);
  EXPECT_EQ(generate({"--set", "parallel.dp=2", "--set", "parallel.shard=zero3"}), wanted);
}

// Under zero3 the ranks answer together: as `weft eval` does on that step's checkpoint, as with
// whole weights on every rank, and without a trace in what is trained.
TEST_P(T5, AnswersInTrainingUnderZero3) {
  std::string rows;
  for (int i = 0; i < 13; ++i)
    rows += fmt::format(R"({{"q": "q{}", "a": "a{}"}})", i, i % 3) + "\n";
  run_.write("rows.jsonl", rows);
  const std::vector<std::string> common = {"data.eval=" + (run_ / "rows.jsonl").string(),
                                           "parallel.mode=exact",
                                           "train.eval_every=15",
                                           "train.lr=1e-2",
                                           "train.steps=30",
                                           "checkpoint.every=15",
                                           "eval.max_new_tokens=6"};
  const auto with = [&](std::vector<std::string> sets) {
    sets.insert(sets.end(), common.begin(), common.end());
    return sets;
  };
  train_well(with({"name=silent"}));
  train_well(with({"name=none", "eval.generate=9", "parallel.dp=2"}));
  const std::string wanted = hash_of(run_.dir("silent"));
  const auto matches = metric_texts(run_.dir("none"), "exact_match");
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_NE(matches[1], "0.0") << "the test must learn something";
  for (const char* tp : {"1", "2"}) {
    const std::string name = fmt::format("tp{}", tp);
    const auto sets = with({"name=" + name, "eval.generate=9", "parallel.dp=2",
                            fmt::format("parallel.tp={}", tp), "parallel.shard=zero3"});
    train_well(sets);
    EXPECT_EQ(hash_of(run_.dir(name)), wanted) << name;
    EXPECT_EQ(metric_texts(run_.dir(name), "exact_match"), matches) << name;
    for (const int64_t step : {15, 30}) {
      auto evaluated = sets;
      evaluated.insert(evaluated.end(), {"data.limit=9", "data.source={q}", "data.target={a}",
                                         "data.target_length=12"});
      const Ended ended = run_to_end(run_.words(
          "eval", evaluated, {"--json", "--model", run_.checkpoint(step, name).string()}));
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      EXPECT_EQ(parse_json(ended.out, "eval").at("exact_match"),
                parse_json(matches[static_cast<size_t>(step / 30)], "metrics"))
          << name << " step " << step;
    }
  }
}

TEST_P(T5, MistakesAreNamed) {
  const auto expect_refused = [&](const std::vector<std::string>& sets,
                                  const std::vector<std::string>& parts) {
    const Ended ended = train(sets);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, parts);
  };
  expect_refused({"parallel.tp=3"}, {"parallel.tp=3 does not divide 4 attention heads",
                                     "admissible values of parallel.tp: 1, 2, 4"});
  expect_refused({"data.tokenizer=auto"}, {"model", "tokenizer"});
  const Ended text = run_.train();
  EXPECT_EQ(text.exit_code, 2);
  expect_parts(text.err, {"an encoder-decoder model needs data.source and data.target"});
  run_.change_config("relative_attention_num_buckets", 0);
  expect_refused({}, {"model/config.json", "relative_attention_num_buckets"});
  run_.change_config("relative_attention_num_buckets", 8);
  run_.change_config("feed_forward_proj", "gated-silu");
  expect_refused({}, {"feed_forward_proj gated-silu is not built", "relu, gated-gelu"});
}

INSTANTIATE_TEST_SUITE_P(All, T5, ::testing::Values("t5"));

}  // namespace
}  // namespace weft::testing
