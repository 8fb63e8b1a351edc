// tests/config/run_config_test.cpp: reads and resolves run files, and compares with a stored one.
#include "config/run_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "config/run_changes.h"
#include "optim/optimizer.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

constexpr const char* kSmallest = "name: a\nmodel: {path: m}\ndata: {train: [t.txt]}\n";

class RunFileTest : public ::testing::Test {
 protected:
  RunFile read(const std::string& text, const std::vector<std::string>& sets = {}) const {
    std::ofstream(folder_ / "run.yaml") << text;
    return RunFile(folder_ / "run.yaml", sets);
  }
  TemporaryFolder folder_;
};

// The defaults of docs/keys.md, written out.
TEST_F(RunFileTest, Defaults) {
  const RunConfig c = read(kSmallest).config();
  EXPECT_EQ(c.storage, "runs");
  EXPECT_EQ(c.seed, 42);
  EXPECT_EQ(c.model.init, "pretrained");
  EXPECT_EQ(c.data.seq_length, 1024);
  EXPECT_EQ(c.data.layout, "pad");
  EXPECT_EQ(c.train.precision, "fp32");
  EXPECT_FALSE(c.train.tf32);
  EXPECT_TRUE(c.train.master_weights);
  EXPECT_EQ(c.train.epochs, 1);
  EXPECT_FALSE(c.train.steps);
  EXPECT_EQ(c.train.global_batch, 8);
  EXPECT_EQ(c.micro_batch(), 2);
  EXPECT_EQ(c.num_passes(), 4);
  EXPECT_EQ(c.train.schedule.lr, 1e-5);
  EXPECT_EQ(c.train.optimizer.betas, (std::vector<double>{0.9, 0.999}));
  EXPECT_EQ(c.train.optimizer.eps, 1e-8);
  EXPECT_EQ(c.train.optimizer.weight_decay, 0.01);
  EXPECT_EQ(c.train.clip_norm, 1);
  EXPECT_EQ(c.checkpoint.keep, 2);
  EXPECT_FALSE(c.has_eval());
  EXPECT_FALSE(c.has_masters());
}

TEST_F(RunFileTest, ResolvedFileMeansTheSame) {
  const RunFile first =
      read(kSmallest, {"train.lr=3e-4", "train.betas=[0.8, 0.95]", "model.num_layers=2",
                       "data.text=a: {b}\n", "model.freeze=[x.*, \"y: 'z'\"]"});
  const RunFile again = read(first.resolved());
  EXPECT_EQ(again.config().train.schedule.lr, 3e-4);
  EXPECT_EQ(again.config().data.text, "a: {b}\n");
  EXPECT_EQ(again.config().model.freeze, (std::vector<std::string>{"x.*", "y: 'z'"}));
  EXPECT_EQ(again.config().model.num_layers, 2);
  const RunChanges changes = compare_runs(first.resolved(), again.resolved());
  EXPECT_TRUE(changes.refused.empty() && changes.allowed.empty());
  EXPECT_EQ(read(read(kSmallest, {"train.steps=5"}).resolved()).config().train.steps, 5);
}

TEST_F(RunFileTest, NullUnsetsText) {
  const std::vector<std::string> sets = {"data.source=a", "data.target=b"};
  EXPECT_EQ(read(kSmallest, sets).config().data.source, "a");
  const RunConfig c =
      read(kSmallest, {"data.source=a", "data.target=b", "data.source=null", "data.target=null"})
          .config();
  EXPECT_EQ(c.data.source, "");
  EXPECT_EQ(c.data.target, "");
  EXPECT_NE(error_of<UserError>([&] {
              read(kSmallest, {"name=null"});
            }).find("name is nothing, wanted text"),
            std::string::npos);
}

TEST_F(RunFileTest, ChangesAreSorted) {
  const std::string stored = read(kSmallest).resolved();
  const auto changes = [&](const std::string& set) {
    return compare_runs(stored, read(kSmallest, {set}).resolved());
  };
  for (const char* set : {"model.path=n", "data.train=[u.txt]", "data.tokenizer=bytes", "seed=1",
                          "model.num_layers=1", "train.global_batch=4", "train.precision=bf16",
                          "train.tf32=true", "train.master_weights=false"}) {
    EXPECT_EQ(changes(set).refused.size(), 1u) << set;
    EXPECT_TRUE(changes(set).allowed.empty()) << set;
  }
  for (const char* set :
       {"train.lr=1", "train.schedule=linear", "train.warmup_steps=3", "train.epochs=3",
        "train.steps=9", "train.log_every=2", "checkpoint.every=5", "launch.threads=2",
        "train.micro_batch=4", "name=b", "storage=elsewhere"}) {
    EXPECT_TRUE(changes(set).refused.empty()) << set;
    EXPECT_EQ(changes(set).allowed.size(), 1u) << set;
  }
  EXPECT_EQ(changes("seed=1").refused[0], "seed: 42 -> 1");
  for (const char* set : {"train.lr=1", "train.schedule=linear", "train.steps=9", "train.eps=1e-6",
                          "train.weight_decay=0.5", "train.clip_norm=2"}) {
    EXPECT_EQ(changes(set).future, changes(set).allowed) << set;
  }
  for (const char* set : {"train.log_every=2", "train.micro_batch=4", "storage=elsewhere", "name=b",
                          "checkpoint.keep=5", "launch.threads=2", "parallel.dp=2"}) {
    EXPECT_EQ(changes(set).allowed.size(), 1u) << set;
    EXPECT_TRUE(changes(set).future.empty()) << set;
  }
}

// A run from before train.tf32 existed computed without it.
TEST_F(RunFileTest, ARunWithoutTf32ResumesWithoutIt) {
  std::string stored = read(kSmallest).resolved();
  const size_t line = stored.find("  tf32: ");
  ASSERT_NE(line, std::string::npos) << stored;
  stored.erase(line, stored.find('\n', line) + 1 - line);
  EXPECT_TRUE(compare_runs(stored, read(kSmallest).resolved()).refused.empty());
  const RunChanges changes = compare_runs(stored, read(kSmallest, {"train.tf32=true"}).resolved());
  EXPECT_EQ(changes.refused, std::vector<std::string>{"train.tf32: false -> true"});
}

TEST_F(RunFileTest, Tf32IsNotForExactMode) {
  EXPECT_TRUE(read(kSmallest, {"train.tf32=true"}).config().asks_tf32());
  EXPECT_FALSE(read(kSmallest, {"train.tf32=true", "train.precision=bf16"}).config().asks_tf32());
  EXPECT_NO_THROW(read(kSmallest, {"parallel.mode=exact"}));
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string e = error_of<UserError>([&] {
      read(kSmallest,
           {"train.tf32=true", "parallel.mode=exact", std::string("train.precision=") + precision});
    });
    EXPECT_NE(e.find("train.tf32: true cannot be combined with parallel.mode: exact"),
              std::string::npos)
        << e;
  }
  const std::string e = error_of<UserError>([&] { read(kSmallest, {"train.tf32=maybe"}); });
  EXPECT_NE(e.find("train.tf32"), std::string::npos) << e;
}

TEST_F(RunFileTest, MicroBatchIsLoweredToTheGlobalOne) {
  const RunConfig c = read(kSmallest, {"train.global_batch=2", "train.micro_batch=16"}).config();
  EXPECT_EQ(c.micro_batch(), 2);
  EXPECT_EQ(c.num_passes(), 1);
}

// Names that people know from other trainers, with our key.
TEST_F(RunFileTest, SetReplacesTheAlternativeOfTheFile) {
  const std::string file = kSmallest + std::string("train: {epochs: 3}\n");
  const RunFile steps = read(file, {"train.steps=4"});
  EXPECT_EQ(steps.config().train.steps, 4);
  EXPECT_EQ(steps.config().train.epochs, 1);
  EXPECT_NE(error_of<UserError>([&] {
              read(file, {"train.steps=4", "train.epochs=2"});
            }).find("both given"),
            std::string::npos);
}

TEST_F(RunFileTest, NamesOfOtherTrainersAreSuggested) {
  const std::pair<const char*, const char*> words[] = {
      {"learning_rate", "train.lr"},
      {"train.learning_rate", "train.lr"},
      {"batch_size", "train.global_batch"},
      {"train.batch_size", "train.global_batch"},
      {"max_steps", "train.steps"},
      {"num_epochs", "train.epochs"},
      {"num_train_epochs", "train.epochs"},
      {"epochs", "train.epochs"},
      {"output_dir", "storage"},
      {"gradient_accumulation_steps", "train.grad_accum"},
      {"per_device_train_batch_size", "train.micro_batch"},
      {"max_seq_length", "data.seq_length"},
      {"model_name_or_path", "model.path"},
      {"train.save_steps", "checkpoint.every"},
      {"zero_stage", "parallel.shard"},
      {"resume_from", "--resume"},
      {"dataset_percentage", "data.fraction"},
      {"debug_steps", "train.steps"},
      {"parallel.pp", "no pipeline parallelism"},
      {"model.lora_r", "no LoRA"},
      {"train.label_smoothing", "without label smoothing"},
      {"train.deepspeed", "parallel.shard"},
      {"report_to", "trackers are not built"},
  };
  for (const auto& pair : words) {
    const std::string word = pair.first, key = pair.second;
    const std::string e = error_of<UserError>([&] { read(kSmallest, {word + "=1"}); });
    EXPECT_NE(e.find("unknown key " + word), std::string::npos) << e;
    EXPECT_NE(e.find(key), std::string::npos) << word << "\n" << e;
  }
}

// A GPU is meant, and "gpu" is one letter from "cpu".
TEST_F(RunFileTest, OtherNamesForAGpuAreSuggested) {
  const auto message_of = [&](const std::string& word) {
    return error_of<UserError>([&] { read(kSmallest, {"launch.device=" + word}); });
  };
  for (const char* word : {"gpu", "GPU", "gpus", "nvidia", "CUDA", "cuda:0", "gpu:1"}) {
    const std::string e = message_of(word);
    EXPECT_NE(e.find("auto | cpu | cuda, did you mean \"cuda\"?"), std::string::npos) << e;
    EXPECT_EQ(e.find("CUDA_VISIBLE_DEVICES") != std::string::npos,
              std::string(word).find(':') != std::string::npos)
        << e;
  }
  EXPECT_NE(message_of("cpus").find("did you mean \"cpu\"?"), std::string::npos);
  EXPECT_EQ(message_of("tpu v4").find("cuda\""), std::string::npos);
}

TEST_F(RunFileTest, OtherNamesForAPrecisionAreSuggested) {
  const auto message_of = [&](const std::string& word) {
    return error_of<UserError>([&] { read(kSmallest, {"train.precision=" + word}); });
  };
  const std::pair<const char*, const char*> words[] = {
      {"float16", "fp16"},        {"half", "fp16"},    {"FP16", "fp16"}, {"bfloat16", "bf16"},
      {"torch.bfloat16", "bf16"}, {"float32", "fp32"}, {"bf61", "bf16"}};
  for (const auto& [word, ours] : words) {
    const std::string e = message_of(word), wanted = "did you mean \"" + std::string(ours) + "\"?";
    EXPECT_NE(e.find(wanted), std::string::npos) << e;
  }
  EXPECT_NE(message_of("tf32").find("train.tf32: true"), std::string::npos) << message_of("tf32");
  EXPECT_EQ(message_of("tf32").find("did you mean"), std::string::npos) << message_of("tf32");
  EXPECT_EQ(message_of("int8").find("did you mean"), std::string::npos) << message_of("int8");
}

TEST_F(RunFileTest, DataMayBeRemote) {
  const RunConfig c =
      read(kSmallest, {"data.train=hf://datasets/a/b/c.parquet", "data.eval=s3://bucket/d.jsonl"})
          .config();
  EXPECT_EQ(c.data.train[0], "hf://datasets/a/b/c.parquet");
}

// The first 40 bytes of a long name are shown, with dots only where some are cut.
TEST_F(RunFileTest, ALongNameIsAbbreviated) {
  const auto message_of = [&](const std::string& name) {
    return error_of<UserError>([&] { read(kSmallest, {"name=" + name}); });
  };
  const std::string most = std::string(39, 'n') + "\a", more = most + "n";
  EXPECT_NE(message_of(most).find("n\\x07\" has a line end"), std::string::npos)
      << message_of(most);
  EXPECT_NE(message_of(more).find("n\\x07...\" has a line end"), std::string::npos)
      << message_of(more);
}

TEST_F(RunFileTest, AllComplaintsAreCollected) {
  const std::string e = error_of<UserError>([&] {
    read("nmae: a\nmodel: {path: m, init: random2}\ndata: {train: [], seq_length: x}\n",
         {"train.lr=q"});
  });
  for (const char* part :
       {"run.yaml:1", "nmae", "name", "model.init", "random2", "data.seq_length", "train.lr"}) {
    EXPECT_NE(e.find(part), std::string::npos) << part << "\n" << e;
  }
}

// What can be trained with can be asked for.
TEST_F(RunFileTest, TakesEveryOptimizer) {
  for (const Optimizer* optimizer : all_optimizers()) {
    const RunConfig c =
        read(kSmallest, {std::string("train.optimizer=") + optimizer->name, "train.momentum=0.5"})
            .config();
    EXPECT_EQ(c.train.optimizer.name, optimizer->name);
    EXPECT_EQ(c.train.optimizer.momentum, 0.5);
  }
}

// The other direction: what can be asked for is declared, and reads keys that exist.
TEST(RunConfigOptimizers, AreDeclared) {
  RunConfig config;
  OptionTable table;
  bind_options(&table, &config);
  std::set<std::string> keys, declared, accepted;
  for (const OptionEntry& e : table.entries()) {
    keys.insert(e.key);
    if (e.key != "train.optimizer") continue;
    std::istringstream words(e.wanted);  // "adamw | sgd"
    for (std::string word; words >> word;) {
      if (word != "|" && std::ranges::count(e.missing_values, word) == 0) accepted.insert(word);
    }
  }
  for (const Optimizer* optimizer : all_optimizers()) {
    declared.insert(optimizer->name);
    for (const std::string& key : optimizer->keys())
      EXPECT_EQ(keys.count(key), 1u) << optimizer->name << " reads " << key;
  }
  EXPECT_EQ(accepted, declared) << "train.optimizer in config/run_config.cpp, and "
                                   "all_optimizers() in optim/optimizer.cpp";
}

}  // namespace
}  // namespace weft
