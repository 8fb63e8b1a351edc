// tests/e2e/evaluation_test.cpp: evaluations by all ranks, generated answers, the best, early ends.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;
using Sets = std::vector<std::string>;

// Rows of prompt and answer: 13, an odd number for any split, of which row 4 has no prompt.
void write_pairs(const TinyRun& run, int count = 13) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += fmt::format("{{\"q\": \"{}\", \"a\": \"a{}\"}}\n", i == 4 ? "" : fmt::format("q{} ", i),
                        i % 3);
  run.write("pairs.jsonl", rows);
}

Sets pairs(const TinyRun& run, const Sets& more) {
  const std::string file = (run / "pairs.jsonl").string();
  Sets sets = {"data.train=" + file, "data.eval=" + file, "data.source={q}", "data.target={a}"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

Json eval_json(const TinyRun& run, const Sets& sets, const std::string& model) {
  const Ended ended = run_to_end(run.words("eval", sets, {"--json", "--model", model}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended.exit_code == 0 ? parse_json(ended.out, "eval") : Json();
}

std::string text_of(const Json& report, const char* key) { return report.at(key).dump(); }

TEST(Evaluation, EveryLayoutCountsEveryRowOnce) {
  const TinyRun run;
  write_pairs(run);
  run.train_well(pairs(run, {"train.steps=2"}));
  const std::string model = run.dir().string();
  for (const char* mode : {"parallel.mode=fast", "parallel.mode=exact"}) {
    const Json one = eval_json(run, pairs(run, {mode}), model);
    EXPECT_EQ(one.at("rows").as_int(), 13);
    EXPECT_GT(one.at("eval_tokens_per_s").as_number(), 0);
    for (const Sets& layout : {Sets{"parallel.dp=2"}, Sets{"parallel.dp=4", "parallel.shard=zero1"},
                               Sets{"parallel.tp=2"}, Sets{"parallel.dp=2", "parallel.shard=zero3"},
                               Sets{"parallel.dp=2", "parallel.tp=2"}}) {
      Sets sets = pairs(run, layout);
      sets.emplace_back(mode);
      const Json got = eval_json(run, sets, model);
      for (const char* key : {"rows", "target_tokens", "exact_match", "step"})
        EXPECT_EQ(text_of(got, key), text_of(one, key)) << key << " " << layout[0];
      const double loss = one.at("eval_loss").as_number();
      EXPECT_NEAR(got.at("eval_loss").as_number(), loss, 1e-5 * loss) << layout[0];
      if (std::string(mode).ends_with("exact")) {
        EXPECT_EQ(text_of(got, "eval_loss"), text_of(one, "eval_loss")) << layout[0];
      }
    }
  }
}

TEST(Evaluation, FewerRowsThanRanks) {
  const TinyRun run;
  write_pairs(run);
  run.train_well(pairs(run, {"train.steps=1"}));
  write_pairs(run, 1);
  const Json one = eval_json(run, pairs(run, {"parallel.mode=exact"}), run.dir().string());
  const Json four =
      eval_json(run, pairs(run, {"parallel.mode=exact", "parallel.dp=4"}), run.dir().string());
  EXPECT_EQ(four.at("rows").as_int(), 1);
  for (const char* key : {"eval_loss", "target_tokens", "exact_match"})
    EXPECT_EQ(text_of(four, key), text_of(one, key)) << key;
}

// How long the loss takes depends on the machine: signal later, until something is evaluated.
TEST(Evaluation, ASignalEndsAllRanksWithWhatTheyHave) {
  const TinyRun run;
  write_pairs(run);
  run.train_well(pairs(run, {"train.steps=1"}));
  write_pairs(run, 100'000);
  Ended ended;
  for (int64_t ms = 200; ms < 60'000; ms *= 2) {
    Program program(run.words("eval", pairs(run, {"parallel.dp=2"}), {"--json"}));
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    ASSERT_TRUE(program.is_running()) << ms;
    program.send(SIGINT);
    ended = program.wait();
    ASSERT_EQ(ended.exit_code, 130) << ended.err;
    if (contains(ended.out, "\"stopped_by\"")) break;
    expect_parts(ended.err, {"SIGINT: stopped before anything was evaluated"});
  }
  expect_parts(ended.err, {"SIGINT: stopping; what was evaluated so far follows",
                           "SIGINT: partial results: the loss covers"});
  expect_parts(ended.out, {"\"stopped_by\": \"SIGINT\""});
}

// The measures in metrics.jsonl are those of weft eval on the same rows and the same weights.
TEST(Evaluation, AnswersDuringTraining) {
  for (const Sets& layout :
       {Sets{}, Sets{"parallel.dp=2"}, Sets{"parallel.tp=2"}, Sets{"parallel.mode=exact"},
        Sets{"parallel.dp=2", "parallel.shard=zero3"}, Sets{"train.precision=bf16"},
        Sets{"parallel.dp=2", "parallel.shard=zero3",
             "model.freeze=[model.layers.0.*, \"*norm*\"]"},
        Sets{"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero2", "parallel.mode=exact"},
        Sets{"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3", "train.precision=bf16"}}) {
    const TinyRun run;
    write_pairs(run);
    Sets sets = pairs(
        run, {"eval.generate=9", "eval.match=sql", "eval.max_new_tokens=4", "train.eval_every=10",
              "train.lr=3e-2", "train.steps=30", "checkpoint.every=30"});
    sets.insert(sets.end(), layout.begin(), layout.end());
    run.train_well(sets);
    std::vector<Json> evals;
    for (const Json& line : metric_lines(run.dir())) {
      if (line.find("eval_loss")) evals.push_back(line);
    }
    ASSERT_EQ(evals.size(), 3u);
    for (const Json& line : evals) {
      EXPECT_GE(line.at("sql_match").as_number(), line.at("exact_match").as_number());
      EXPECT_GT(line.at("eval_tokens_per_s").as_number(), 0);
    }
    sets.emplace_back("data.limit=9");
    const Json report = eval_json(run, sets, run.checkpoint(30).string());
    const std::string name =
        layout.empty() ? "one rank" : fmt::format("{}", fmt::join(layout, " "));
    EXPECT_EQ(report.at("rows").as_int(), 9);
    EXPECT_GT(report.at("exact_match").as_number(), 0) << "the test must learn something: " << name;
    for (const char* key : {"exact_match", "sql_match"})
      EXPECT_EQ(text_of(evals.back(), key), text_of(report, key)) << key << ", " << name;
  }
}

// A packed row may be longer than data.seq_length; its prompt is cut, not refused in the middle of
// a run.
TEST(Evaluation, LongPromptsOfPackedRowsAreCut) {
  const TinyRun run;
  write_pairs(run);
  run.write("pairs.jsonl",
            slurp(run / "pairs.jsonl") +
                fmt::format("{{\"q\": \"{}\", \"a\": \"a1\"}}\n", std::string(150, 'q')));
  for (const char* layout : {"parallel.dp=1", "parallel.dp=2", "parallel.tp=2"}) {
    const Sets sets = pairs(
        run, {"data.layout=pack", "data.seq_length=40", "eval.generate=14", "eval.max_new_tokens=8",
              "train.eval_every=2", "train.steps=2", "train.global_batch=2", "train.micro_batch=1",
              std::string("name=") + (layout + 9), layout});
    const Ended ended = run.train(sets);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    expect_parts(ended.err, {"1 prompts are longer than data.seq_length, 40"});
  }
}

// The first of all ranks' rows is named, whichever rank has it.
TEST(Evaluation, RowsThatNoAnswerCanMatchAreCounted) {
  const TinyRun run;
  write_pairs(run);
  run.write(
      "pairs.jsonl",
      slurp(run / "pairs.jsonl") +
          "{\"q\": \"q\", \"a\": \"x<|endoftext|>y\"}\n{\"q\": \"q\", \"a\": \"<|endoftext|>\"}\n");
  const Sets sets = pairs(run, {"eval.generate=15", "eval.max_new_tokens=2", "train.steps=1",
                                "train.eval_every=1", "parallel.dp=2"});
  const std::vector<std::string> parts = {"2 of 15 rows cannot be matched", "pairs.jsonl:14, whose",
                                          R"(is decoded as "x", and data.target is "x<|end)"};
  const Ended ended = run.train(sets);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, parts);
  expect_parts(run_to_end(run.words("eval", sets)).err, parts);
}

// Generation shares the arena, and changes nothing that is trained.
TEST(Evaluation, AnswersAreInThePlanAndChangeNoBits) {
  const TinyRun run;
  write_pairs(run);
  const Sets with = pairs(run, {"eval.generate=5", "name=with", "train.eval_every=2"}),
             without = pairs(run, {"name=without", "train.eval_every=2"});
  run.train_well(with);
  run.train_well(without);
  EXPECT_EQ(hash_of(run.checkpoint(6, "with")), hash_of(run.checkpoint(6, "without")));
  EXPECT_EQ(metric_texts(run.dir("with"), "eval_loss"),
            metric_texts(run.dir("without"), "eval_loss"));
  const auto arena = [&](const Sets& sets, const std::string& name) {
    const Ended planned = run_to_end(run.words("plan", sets, {"--json"}));
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    const int64_t bytes = parse_json(planned.out, "plan").at("arena").as_int();
    EXPECT_EQ(event_lines(run.dir(name), "started").at(0).at("arena_bytes").as_int(), bytes);
    return bytes;
  };
  EXPECT_GT(arena(with, "with"), arena(without, "without"));
}

TEST(Evaluation, ContradictionsAreRefused) {
  const TinyRun run;
  write_pairs(run);
  const std::string eval = "data.eval=" + (run / "eval.txt").string();
  const struct {
    Sets sets;
    std::vector<std::string> parts;
  } cases[] = {
      {{"train.early_stop=2"}, {"train.early_stop is 2", "data.eval"}},
      {{eval, "eval.match=sql"}, {"eval.match is sql", "data.target"}},
      {{eval, "eval.generate=3"}, {"eval.generate is 3", "data.target"}},
      {{"eval.generate=3", "data.source={text}", "data.target={text}"},
       {"eval.generate is 3", "data.eval"}},
      {pairs(run, {"checkpoint.best=exact_match"}),
       {"checkpoint.best is exact_match", "eval.generate is 0"}},
      {pairs(run, {"checkpoint.best=sql_match", "eval.generate=3"}),
       {"eval.match is exact", "set it to sql"}},
      {pairs(run, {"checkpoint.best=exact_match", "eval.generate=3", "eval.match=sql"}),
       {"eval.match is sql", "set it to exact"}},
  };
  for (const auto& c : cases) {
    const Ended ended = run.train(c.sets);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, c.parts);
  }
  EXPECT_FALSE(fs::exists(run.dir()));
}

TEST(Evaluation, SqlMatchNeedsATargetInEvalToo) {
  const TinyRun run;
  write_pairs(run);
  const Ended ended =
      run_to_end(run.words("eval", {"data.eval=" + (run / "eval.txt").string(), "eval.match=sql"},
                           {"--model", (run / "model").string()}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"eval.match is sql", "data.target"});
}

// What only training reads does not prevent an evaluation.
TEST(Evaluation, KeysOfTrainingAreNotChecked) {
  const TinyRun run;
  write_pairs(run);
  run.train_well(pairs(run, {"train.steps=1"}));
  const std::string model = run.dir().string();
  const std::string wanted = eval_json(run, pairs(run, {}), model).at("eval_loss").dump();
  for (const char* set :
       {"checkpoint.best=sql_match", "train.optimizer=adamw8bit", "train.recompute=full"}) {
    EXPECT_EQ(run.train(pairs(run, {set})).exit_code, 2) << set;
    EXPECT_EQ(eval_json(run, pairs(run, {set}), model).at("eval_loss").dump(), wanted) << set;
  }
  const Ended ended = run_to_end(run.words("eval", pairs(run, {"data.format=idx"})));
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"data.format is idx", "does not have"});
}

// Wrong input is not a rank's fault.
TEST(Evaluation, SeveralRanksSayWhatOneSays) {
  const TinyRun run;
  write_pairs(run);
  run.train_well(pairs(run, {"train.steps=1"}));
  const struct {
    Sets sets, more;
    const char* part;
  } cases[] = {{{}, {}, "error: the run file has no rows for evaluation"},
               {pairs(run, {"data.target={z}", "data.source={y}"}), {}, "there are no columns"},
               {pairs(run, {"data.eval=/none.jsonl"}), {}, "there is no file /none.jsonl"},
               {pairs(run, {"data.tokenizer=auto"}), {}, "no tokenizer"},
               {pairs(run, {}), {"--model", "/none"}, "error: there is no folder or file /none"}};
  for (const auto& c : cases) {
    const Ended one = run_to_end(run.words("eval", c.sets, c.more));
    Sets sets = c.sets;
    sets.emplace_back("parallel.dp=2");
    const Ended two = run_to_end(run.words("eval", sets, c.more));
    EXPECT_EQ(two.exit_code, 2);
    expect_parts(two.err, {c.part});
    EXPECT_EQ(two.err, one.err);
  }
  const Ended trained = run.train({"data.tokenizer=auto", "parallel.dp=2"});
  EXPECT_EQ(trained.exit_code, 2);
  EXPECT_TRUE(!contains(trained.err, "exit code")) << trained.err;
}

TEST(Evaluation, AnotherModelIsNamed) {
  const TinyRun run;
  write_pairs(run);
  run.train_well(pairs(run, {"train.steps=1", "name=other"}));
  const std::string other = (run.dir("other") / "final").string();
  const auto expect_refused = [&](const std::vector<std::string>& parts) {
    const Ended ended = run_to_end(run.words("eval", pairs(run, {}), {"--model", other}));
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, parts);
    expect_parts(ended.err, {other, (run / "model").string(), "--set model.path=" + other});
  };
  run.change_config("intermediate_size", 72);
  expect_refused({"with intermediate_size ", "instead of 72"});
  run.change_config("architectures", Json(Json::Array{Json("MistralForCausalLM")}));
  expect_refused({"not a MistralForCausalLM"});
}

}  // namespace
}  // namespace weft::testing
