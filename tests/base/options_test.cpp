// tests/base/options_test.cpp: reading, complaining, refusing and printing by one table.
#include "base/options.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace weft {
namespace {

struct Config {
  std::string name;
  int64_t seed = 42;
  double lr = 1e-5;
  bool shuffle = true;
  std::string precision = "fp32";
  std::vector<double> betas = {0.9, 0.999};
  std::vector<std::string> files;
  std::map<std::string, std::string> env;
  std::optional<int64_t> num_layers;
  std::optional<double> dropout;
  std::optional<std::string> source;
  int64_t tp = 1;
  std::string text = "{text}";
};

class Options : public ::testing::Test {
 protected:
  Options() { fill(table, config); }

  static void fill(OptionTable& t, Config& c) {
    t.add("name", &c.name, "run directory").required();
    t.add("seed", &c.seed, "of all random numbers").at_least(0);
    t.add("model.num_layers", &c.num_layers, "keep the first layers").at_least(1);
    t.add("model.dropout", &c.dropout, "overrides the config").between(0, 1);
    t.add("data.train", &c.files, "files").required();
    t.add("data.text", &c.text, "template");
    t.add("data.source", &c.source, "template of the prompt");
    t.add("data.shuffle", &c.shuffle, "permute the rows");
    t.add("parallel.tp", &c.tp, "tensor parallel ranks").not_built("tensor parallelism");
    t.add("train.lr", &c.lr, "learning rate").above(0);
    t.add("train.precision", &c.precision, "compute type")
        .one_of({"fp32", "bf16", "fp16"})
        .not_built_values({"fp16"});
    t.add("train.betas", &c.betas, "of AdamW").length(2).at_least(0).below(1);
    t.add("launch.env", &c.env, "variables")
        .hide([](std::string_view name) { return name == "HIDDEN"; }, "<hidden>");
  }

  std::vector<std::string> read(const std::string& text) {
    std::vector<std::string> complaints;
    table.read(parse_yaml(text, "r.yaml"), "r.yaml", complaints);
    return complaints;
  }
  std::vector<std::string> set(const std::string& assignment) {
    std::vector<std::string> complaints;
    table.set(assignment, complaints);
    return complaints;
  }
  using Lines = std::vector<std::string>;

  Config config;
  OptionTable table;
};

TEST_F(Options, ReadEveryType) {
  EXPECT_EQ(read("name: x\nseed: 7\nmodel: {num_layers: 2, dropout: 0.5}\n"
                 "data:\n  train: [a.txt, \"b c.txt\"]\n  source: \"Q: {q}\"\n  shuffle: false\n"
                 "train: {lr: 1.0e-3, precision: bf16, betas: [0, .5]}\n"
                 "launch: {env: {A: b, C: \"1\"}}\n"),
            Lines{});
  EXPECT_EQ(config.name, "x");
  EXPECT_EQ(config.seed, 7);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.dropout, 0.5);
  EXPECT_EQ(config.files, (Lines{"a.txt", "b c.txt"}));
  EXPECT_EQ(config.source, "Q: {q}");
  EXPECT_FALSE(config.shuffle);
  EXPECT_EQ(config.lr, 1e-3);
  EXPECT_EQ(config.precision, "bf16");
  EXPECT_EQ(config.betas, (std::vector<double>{0, 0.5}));
  EXPECT_EQ(config.env.at("A"), "b");
  EXPECT_TRUE(table.was_given("train.lr"));
  EXPECT_FALSE(table.was_given("data.text"));
}

TEST_F(Options, NumbersInEveryForm) {
  for (const auto& [text, value] : std::map<std::string, double>{
           {"1.0e-5", 1e-5}, {"1e-5", 1e-5}, {"5", 5}, {"+2", 2}, {".5", .5}, {"1E3", 1000}}) {
    EXPECT_EQ(read("train: {lr: " + text + "}"), Lines{});
    EXPECT_EQ(config.lr, value) << text;
  }
  for (const char* text : {"1.5", "1e3", "x", "\"7\"", "true", "99999999999999999999", "-1", "++1",
                           "0x10", "[1]", "", ".inf"}) {
    EXPECT_EQ(read("seed: " + std::string(text)).size(), 1u) << text;
    EXPECT_EQ(config.seed, 42) << text;
  }
  for (const char* text : {"nan", "inf", ".inf", "1e999", "0", "-1", "1,5", "1 2", "yes"}) {
    EXPECT_EQ(read("train: {lr: \"" + std::string(text) + "\"}").size(), 1u) << text;
    EXPECT_EQ(set("train.lr=" + std::string(text)).size(), 1u) << text;
  }
}

TEST_F(Options, BooleansAreOnlyTrueAndFalse) {
  for (const char* text : {"yes", "no", "on", "True", "1", "\"true\"", "y"}) {
    EXPECT_EQ(read("data: {shuffle: " + std::string(text) + "}").size(), 1u) << text;
  }
  EXPECT_EQ(read("data: {shuffle: false}"), Lines{});
  EXPECT_FALSE(config.shuffle);
}

TEST_F(Options, AllComplaintsAtOnceWithLines) {
  EXPECT_EQ(
      read("nmae: x\nseed: 1.5\ntrain:\n  lrr: 1\n  precision: fp23\n  betas: [0.9]\n"
           "modle: {x: 1}\ndata: 5\nlaunch: {train: a, zzz: 1}\ndata.text: x\n"),
      (Lines{"r.yaml:1: unknown key nmae, did you mean \"name\"?",
             "r.yaml:2: seed is 1.5, wanted a whole number >= 0",
             "r.yaml:4: unknown key train.lrr, did you mean \"train.lr\"?",
             "r.yaml:5: train.precision is fp23, wanted fp32 | bf16 | fp16, "
             "did you mean \"fp32\"?",
             "r.yaml:6: train.betas is a list of 1, wanted a list [a, b] of 2, each a number >= 0 "
             "and < 1",
             "r.yaml:7: unknown key modle, did you mean \"model\"?",
             "r.yaml:8: data is a section of keys, got 5",
             "r.yaml:9: unknown key launch.train, did you mean \"data.train\"?",
             "r.yaml:9: unknown key launch.zzz",
             "r.yaml:10: key data.text: write \"data:\" and \"text:\" indented below it"}));
}

TEST_F(Options, SynonymsAreSuggestedAndNotAccepted) {
  table.add_synonym("learning_rate", "train.lr");
  table.add_synonym("seeds", "data.train (files)");  // before "seed", which is near
  EXPECT_EQ(read("learning_rate: 1\ntrain: {learning-rate: 1, learningRate: 2}\n"),
            (Lines{"r.yaml:1: unknown key learning_rate; here it is train.lr",
                   "r.yaml:2: unknown key train.learning-rate; here it is train.lr",
                   "r.yaml:2: unknown key train.learningRate; here it is train.lr"}));
  EXPECT_EQ(config.lr, 1e-5);
  EXPECT_EQ(set("seeds=1"),
            Lines{"--set seeds=1: unknown key seeds; here it is data.train (files)"});
  EXPECT_THROW(table.add_synonym("x", "train.rate"), BugError);
  EXPECT_THROW(table.add_synonym("seeds", "seed"), BugError);
}

TEST_F(Options, KeysOfOtherProgramsWithoutACounterpart) {
  table.add_absent("lora_r", "there is no LoRA; model.dropout is near");
  EXPECT_EQ(read("model: {lora_r: 8}\n"),
            Lines{"r.yaml:1: unknown key model.lora_r: there is no LoRA; model.dropout is near"});
  EXPECT_EQ(set("loraR=8"), Lines{"--set loraR=8: unknown key loraR: there is no LoRA; "
                                  "model.dropout is near"});
  EXPECT_THROW(table.add_absent("lora_r", "again"), BugError);
}

TEST_F(Options, SetReplacesTheFilesAlternatives) {
  table.add_alternatives({{"data.text"}, {"data.source", "model.dropout"}, {"data.train"}});
  EXPECT_EQ(read("name: x\ndata: {train: [a], source: s}\nmodel: {dropout: 0.5}\n"), Lines{});
  EXPECT_EQ(table.replaced(), Lines{});
  EXPECT_EQ(set("data.text={a}"), Lines{});
  EXPECT_EQ(config.text, "{a}");
  EXPECT_EQ(config.source, std::nullopt);
  EXPECT_EQ(config.dropout, std::nullopt);
  EXPECT_EQ(config.files, Lines{});
  EXPECT_FALSE(table.was_given("data.source"));
  EXPECT_EQ(table.replaced(), (Lines{"--set data.text={a} replaces data.source from the run file",
                                     "--set data.text={a} replaces model.dropout from the run file",
                                     "--set data.text={a} replaces data.train from the run file"}));
  // Values given by --set are not unset; the checks report the contradiction.
  EXPECT_EQ(set("data.source=s"), Lines{});
  EXPECT_EQ(config.text, "{a}");
  EXPECT_EQ(table.replaced().size(), 3u);
  EXPECT_THROW(table.add_alternatives({{"data.txt"}}), BugError);
}

TEST_F(Options, NullUnsetsAKeyOfTheFile) {
  EXPECT_EQ(read("name: x\ntrain: {lr: 3, precision: bf16}\ndata: {shuffle: false}\n"), Lines{});
  for (const char* key : {"train.lr", "train.precision", "data.shuffle"}) {
    EXPECT_EQ(set(std::string(key) + "=null"), Lines{});
    EXPECT_FALSE(table.was_given(key));
  }
  EXPECT_EQ(config.lr, Config().lr);
  EXPECT_EQ(config.precision, Config().precision);
  EXPECT_EQ(config.shuffle, Config().shuffle);
  EXPECT_EQ(set("name=null"), Lines{"--set name=null: name is nothing, wanted text"});
}

TEST_F(Options, TextThatLooksLikeASection) {
  EXPECT_EQ(read("data:\n  text: {text}\n"),
            (Lines{"r.yaml:2: data.text is a section {key: value}, wanted text; put quotes around "
                   "text that begins with {"}));
}

TEST_F(Options, SetTakesTextLiterally) {
  EXPECT_EQ(set("data.text={text} # \"x\": y"), Lines{});
  EXPECT_EQ(config.text, "{text} # \"x\": y");
  EXPECT_EQ(set("data.train=a,b.txt"), Lines{});
  EXPECT_EQ(config.files, Lines{"a,b.txt"});
  EXPECT_EQ(set("data.train=[a, b]"), Lines{});
  EXPECT_EQ(config.files, (Lines{"a", "b"}));
  EXPECT_EQ(set("launch.env={A: x}"), Lines{});
  EXPECT_EQ(config.env.at("A"), "x");
  EXPECT_EQ(set("model.num_layers=3"), Lines{});
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(set("model.num_layers=null"), Lines{});
  EXPECT_EQ(config.num_layers, std::nullopt);
  EXPECT_EQ(set("train.lr=a=b"), Lines{"--set train.lr=a=b: train.lr is a=b, wanted a number > 0"});
  EXPECT_EQ(set("train.lr"), Lines{"--set train.lr: wanted section.key=value, got no \"=\""});
  EXPECT_EQ(set("trian.lr=1"),
            Lines{"--set trian.lr=1: unknown key trian.lr, did you mean \"train.lr\"?"});
  EXPECT_EQ(set("train=4"),
            Lines{"--set train=4: train is a section, not a key: wanted train.key=value"});
  EXPECT_EQ(set("data.train=[]"),
            Lines{"--set data.train=[]: data.train is an empty list, wanted at least one"});
  EXPECT_EQ(set("train.lr="), Lines{"--set train.lr=: train.lr is empty, wanted a number > 0"});
  EXPECT_EQ(set("data.train=[a").size(), 1u);
  EXPECT_EQ(set("data.text=\xff").size(), 1u);
}

TEST_F(Options, RefusesWhatIsNotBuilt) {
  EXPECT_EQ(read("parallel: {tp: 1}"), Lines{});
  EXPECT_EQ(read("parallel: {tp: 2}"),
            Lines{"r.yaml:1: parallel.tp is 2, which this build does not have yet: tensor "
                  "parallelism; leave it at 1"});
  EXPECT_EQ(config.tp, 1);
  EXPECT_EQ(set("train.precision=fp16"),
            Lines{"--set train.precision=fp16: train.precision is fp16, which this build does not "
                  "have yet"});
  EXPECT_EQ(config.precision, "fp32");
  EXPECT_NE(table.resolved().find("tp: 1  # not built"), std::string::npos);
}

TEST_F(Options, RequiredKeys) {
  std::vector<std::string> complaints;
  table.check_required(complaints);
  EXPECT_EQ(complaints, (Lines{"name must be given: run directory (text)",
                               "data.train must be given: files (a list [a, b], each text)"}));
  EXPECT_EQ(set("name=x"), Lines{});
  EXPECT_EQ(set("data.train=x"), Lines{});
  complaints.clear();
  table.check_required(complaints);
  EXPECT_EQ(complaints, Lines{});
}

TEST_F(Options, RefuseThrowsAllTogether) {
  EXPECT_NO_THROW(refuse({}));
  try {
    refuse({"one", "two"});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "one\n  two");
    EXPECT_EQ(e.exit_code(), 2);
  }
}

TEST_F(Options, SecretsAreReadButNotPrinted) {
  EXPECT_EQ(set("launch.env={SHOWN: a, HIDDEN: b}"), Lines{});
  EXPECT_EQ(config.env["HIDDEN"], "b");
  const std::string text = table.resolved();
  EXPECT_NE(text.find("SHOWN: a"), std::string::npos) << text;
  EXPECT_NE(text.find("HIDDEN: \"<hidden>\""), std::string::npos) << text;
  for (const OptionEntry& e : table.entries()) EXPECT_EQ(e.value.find(": b"), std::string::npos);
}

TEST_F(Options, ResolvedReadsBackUnchanged) {
  config.name = "changed later";  // the default stays what it was when added
  EXPECT_EQ(set("data.text=Instruction: {a}\n\tInput: \"{b}\" é # no"), Lines{});
  EXPECT_EQ(set("data.train=[\"a: b\", 'true', x.txt]"), Lines{});
  EXPECT_EQ(set("launch.env={\"A B\": \"#\"}"), Lines{});
  EXPECT_EQ(set("train.lr=0.30000000000000004"), Lines{});
  EXPECT_EQ(set("model.dropout=0"), Lines{});
  const std::string text = table.resolved();
  Config again;
  OptionTable second;
  fill(second, again);
  std::vector<std::string> complaints;
  second.read(parse_yaml(text, "run.yaml"), "run.yaml", complaints);
  EXPECT_EQ(complaints, Lines{});
  EXPECT_EQ(again.name, config.name);
  EXPECT_EQ(again.text, config.text);
  EXPECT_EQ(again.files, config.files);
  EXPECT_EQ(again.env, config.env);
  EXPECT_EQ(again.lr, config.lr);
  EXPECT_EQ(again.dropout, 0.0);
  EXPECT_EQ(again.num_layers, std::nullopt);
  EXPECT_EQ(again.betas, config.betas);
}

TEST_F(Options, ResolvedMarksDefaults) {
  EXPECT_EQ(read("name: x\ntrain: {lr: 0.5}\n"), Lines{});
  EXPECT_EQ(table.resolved(),
            "name: x\n"
            "seed: 42  # default\n"
            "model:\n"
            "  num_layers: null  # default\n"
            "  dropout: null  # default\n"
            "data:\n"
            "  train: []  # default\n"
            "  text: \"{text}\"  # default\n"
            "  source: null  # default\n"
            "  shuffle: true  # default\n"
            "parallel:\n"
            "  tp: 1  # not built\n"
            "train:\n"
            "  lr: 0.5\n"
            "  precision: fp32  # default\n"
            "  betas: [0.9, 0.999]  # default\n"
            "launch:\n"
            "  env: {}  # default\n");
}

TEST_F(Options, FileMayHoldUnbuiltValuesThatAreOverridden) {
  table.expect({"train.precision=bf16", "parallel.tp = 4"});
  EXPECT_EQ(read("train: {precision: fp16}\nparallel: {tp: 2}\n"), Lines{});
  EXPECT_EQ(set("train.precision=bf16"), Lines{});
  EXPECT_EQ(config.precision, "bf16");
  EXPECT_EQ(set("parallel.tp=4").size(), 1u);  // what is set must be built
  EXPECT_EQ(read("train: {precision: fp16}\n").size(), 1u);
}

TEST_F(Options, InspectionAcceptsUnbuiltValues) {
  table.take_not_built();
  EXPECT_EQ(read("train: {precision: fp16}\nparallel: {tp: 4}\n"), Lines{});
  EXPECT_EQ(config.tp, 4);
  EXPECT_EQ(table.not_built(), (Lines{"train.precision: fp16", "parallel.tp: 4"}));
}

TEST_F(Options, UnreadKeysMayHaveUnbuiltValues) {
  table.take_not_built({"train."});
  const Lines complaints = read("train: {precision: fp16}\nparallel: {tp: 4}\n");
  ASSERT_EQ(complaints.size(), 1u);
  EXPECT_NE(complaints[0].find("parallel.tp is 4"), std::string::npos) << complaints[0];
  EXPECT_EQ(table.not_built(), Lines{"train.precision: fp16"});
}

TEST_F(Options, EntriesForHelp) {
  EXPECT_EQ(read("train: {lr: 0.5}\n"), Lines{});
  for (const OptionEntry& e : table.entries()) {
    if (e.key != "train.lr") continue;
    EXPECT_EQ(e.help, "learning rate");
    EXPECT_EQ(e.wanted, "a number > 0");
    EXPECT_EQ(e.default_value, "1e-05");
    EXPECT_EQ(e.value, "0.5");
    EXPECT_TRUE(e.given);
    EXPECT_FALSE(e.required);
    return;
  }
  FAIL() << "no train.lr";
}

TEST_F(Options, MisuseIsABugNotAUserError) {
  EXPECT_THROW(table.add("name", &config.text, ""), BugError);
  EXPECT_THROW(table.add("data.late", &config.text, ""), BugError);
  EXPECT_THROW(static_cast<void>(table.was_given("none")), BugError);
}

}  // namespace
}  // namespace weft
