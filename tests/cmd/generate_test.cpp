// tests/cmd/generate_test.cpp: continuations of a small model from folder, checkpoint and run.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "base/printable.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/list.h"
#include "io/hf_folder.h"
#include "tests/cmd/run_weft.h"
#include "text/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Ended;
using testing::run_weft;
using testing::TemporaryFolder;

constexpr const char* kGolden = "tests/golden/data/tiny_llama/model";  // 257 ids: bytes and eos

class GenerateCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
      fs::copy_file(fs::path(kGolden) / name, folder_ / name);
    }
    for (const auto& [name, bytes] : make_bytes_tokenizer()->files()) {
      std::ofstream(folder_ / name) << bytes;
    }
  }
  Ended generate(const std::string& words, const std::string& input = "") const {
    return run_weft("generate '" + folder_.path().string() + "' " + words, input);
  }
  TemporaryFolder folder_;
};

TEST_F(GenerateCommand, EveryInputYieldsTheSameContinuation) {
  const Ended got = generate("--prompt hello --max-new-tokens 12");
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_TRUE(got.out.ends_with("\n"));
  EXPECT_GT(got.out.size(), 1u);
  EXPECT_EQ(generate("--max-new-tokens 12", "hello\n").out, got.out);
  EXPECT_EQ(generate("--max-new-tokens 12 --threads 1 --prompt hello").out, got.out);
}

// More bytes than an argument may have, in few tokens: the tokenizer's last one is long. The text
// ends with a line that belongs to the prompt.
TEST_F(GenerateCommand, ALongPromptReachesEveryRank) {
  const std::string long_token(20000, 'x'), end = "<|endoftext|>";
  for (auto [name, bytes] : make_bytes_tokenizer()->files()) {
    for (size_t at; (at = bytes.find(end)) != std::string::npos;)
      bytes.replace(at, end.size(), long_token);
    std::ofstream(folder_ / name) << bytes;
  }
  std::string prompt = "hello";
  for (int i = 0; i < 8; ++i) prompt += long_token + " ";
  prompt += "\n";
  const std::string words = "--max-new-tokens 6 --json --device cpu --threads 1";
  const Ended one = generate(words, prompt + "\n");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(parse_json(one.out, "one").at("prompt").as_string(), prompt);
  const Ended two = generate(words + " --set parallel.tp=2", prompt + "\n");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(two.out, one.out);
}

TEST_F(GenerateCommand, JsonHoldsPromptTextAndIds) {
  const Ended got = generate("--prompt hello --max-new-tokens 12 --json");
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const Json json = parse_json(got.out, "output");
  EXPECT_EQ(json.at("prompt").as_string(), "hello");
  EXPECT_LE(json.at("ids").as_array().size(), 12u);
  std::vector<int32_t> ids;
  for (const Json& id : json.at("ids").as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  EXPECT_EQ(make_bytes_tokenizer()->decode(ids, true), json.at("text").as_string());
  EXPECT_EQ(json.at("text").as_string() + "\n", generate("--prompt hello --max-new-tokens 12").out);
}

TEST_F(GenerateCommand, PromptsYieldOneLineEachInOrder) {
  const std::string file = (folder_ / "prompts").string();
  std::ofstream(file) << "a\nsecond one\r\nc";
  const Ended got = generate("--max-new-tokens 9 --json --prompts " + file);
  std::istringstream lines(got.out);
  std::vector<std::string> prompts;
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, "line");
    prompts.push_back(json.at("prompt").as_string());
    const Ended alone = generate("--max-new-tokens 9 --json --prompt '" + prompts.back() + "'");
    EXPECT_EQ(alone.out, line + "\n");
  }
  EXPECT_EQ(prompts, (std::vector<std::string>{"a", "second one", "c"}));
  const std::string plain = generate("--max-new-tokens 40 --prompts " + file).out;
  EXPECT_EQ(std::count(plain.begin(), plain.end(), '\n'), 3);
}

TEST_F(GenerateCommand, AFileWithoutPromptsIsRefused) {
  const std::string file = (folder_ / "prompts").string();
  std::ofstream(file) << "";
  const Ended got = generate("--prompts " + file);
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_NE(got.err.find("no prompts in " + file), std::string::npos) << got.err;
  EXPECT_EQ(got.out, "");
}

// So hot that every byte is as likely as any other: a fifth of them are control characters.
TEST_F(GenerateCommand, TheModelCannotControlATerminal) {
  const std::string words = "--temperature 1000 --seed 5 --max-new-tokens 200 --prompt x";
  const Ended piped = generate(words);
  ASSERT_EQ(piped.exit_code, 0) << piped.err;
  const std::string obeyed = printable(piped.out);
  ASSERT_NE(obeyed, piped.out) << "nothing to escape";
  // Where it computes is printed under auto, on the same terminal.
  const std::string model = "generate '" + folder_.path().string() + "' --device cpu ";
  EXPECT_EQ(testing::run_weft_on_terminal(model + words), obeyed);
  const std::string file = (folder_ / "prompts").string();
  std::ofstream(file) << "x\n";
  const std::string lines = "--temperature 1000 --seed 5 --max-new-tokens 200 --prompts " + file;
  EXPECT_EQ(testing::run_weft_on_terminal(model + lines), printable(generate(lines).out));
}

TEST_F(GenerateCommand, SamplingIsReproducibleBySeed) {
  const std::string words = "--prompt x --max-new-tokens 30 --json --top-k 50 --seed ";
  const std::string one = generate(words + "1").out;
  EXPECT_EQ(one, generate(words + "1").out);
  EXPECT_EQ(one, generate(words + "1 --temperature 1").out);
  EXPECT_NE(one, generate(words + "2").out);
}

TEST_F(GenerateCommand, CheckpointAndRunDirectoryAreModelsToo) {
  const HfFolder hf(folder_.path());
  const fs::path run = folder_ / "run";
  std::vector<Slice> slices;
  for (const std::string& name : hf.tensor_names()) {
    const auto [file, info] = hf.find(name);
    slices.push_back(whole_tensor(name + "#master", info->shape, info->dtype,
                                  const_cast<std::byte*>(file->data(*info))));
  }
  auto side_files = make_bytes_tokenizer()->files();
  side_files["config.json"] = hf.config().dump();
  fs::create_directories(run / "checkpoints");
  write_checkpoint(checkpoint_path(run, 3), slices, Json(Json::Object{}), side_files);
  const std::string words = " --prompt hello --max-new-tokens 12 --json";
  const std::string wanted = generate(words).out;
  const Ended got = run_weft("generate " + run.string() + words);
  EXPECT_EQ(got.out, wanted) << got.err;
  EXPECT_EQ(run_weft("generate " + checkpoint_path(run, 3).string() + words).out, wanted);
}

TEST_F(GenerateCommand, StopsAtThePositionsWithAMessage) {
  const Ended got = generate("--max-new-tokens 2000 --json --prompt " + std::string(505, 'a'));
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const size_t made = parse_json(got.out, "output").at("ids").as_array().size();
  EXPECT_LE(made, 8u);  // 512 that are fed, and one that is not
  EXPECT_EQ(made == 8, got.err.find("reached the limit") != std::string::npos) << got.err;
}

TEST_F(GenerateCommand, WrongInputIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"--prompt ''", "--prompt is empty"},
      {"--prompt a --temperature -1", "temperature is -1"},
      {"--prompt a --top-p 2", "top_p is 2"},
      {"--prompt a --top-k -3", "top_k is -3"},
      {"--prompt a --max-new-tokens -1", "max_new_tokens is -1"},
      {"--prompt a --prompts b", "--prompt"},
      {"--prompts no-such-file", "no-such-file"},
  };
  for (const auto& [words, wanted] : cases) {
    const Ended got = generate(words);
    EXPECT_EQ(got.exit_code, 2) << words << "\n" << got.err;
    EXPECT_NE(got.err.find(wanted), std::string::npos) << words << "\n" << got.err;
  }
  fs::remove(folder_ / "tokenizer.json");
  const Ended without = generate("--prompt a");
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.err.find("has no tokenizer"), std::string::npos) << without.err;
  EXPECT_NE(without.err.find("--tokenizer bytes"), std::string::npos) << without.err;
  EXPECT_EQ(generate("--prompt a --tokenizer bytes --max-new-tokens 1").exit_code, 0);
}

// The file and the line, from 1 as in editors.
TEST_F(GenerateCommand, ABadPromptIsLocated) {
  const std::string file = (folder_ / "prompts").string();
  std::ofstream(file) << "a\n\nc\n";
  Ended got = generate("--prompts " + file);
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_NE(got.err.find(file + ":2 is empty"), std::string::npos) << got.err;
  std::ofstream(file) << "a\nb\n" << std::string(600, 'x') << "\n";
  got = generate("--prompts " + file);
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_NE(got.err.find(file + ":3 has 600 tokens"), std::string::npos) << got.err;
  EXPECT_NE(got.err.find("shorten the prompt, or raise max_position_embeddings"), std::string::npos)
      << got.err;
  got = generate("", "\n");
  EXPECT_NE(got.err.find("the prompt on standard input is empty"), std::string::npos) << got.err;
}

TEST_F(GenerateCommand, DamagedWeightsAreNamed) {
  std::ofstream(folder_ / "config.json", std::ios::app) << " ";
  const Json config = HfFolder(folder_.path()).config();
  Json changed = config;
  changed.set("intermediate_size", config.at("intermediate_size").as_int() + 8);
  std::ofstream(folder_ / "config.json") << changed.dump();
  const Ended got = generate("--prompt a");
  EXPECT_EQ(got.exit_code, 2);
  EXPECT_NE(got.err.find("has shape"), std::string::npos) << got.err;
}

// With a GPU the CPU's tokens, without one an error that says what to do.
TEST_F(GenerateCommand, GpuIsUsedOrRejected) {
  const std::string file = (folder_ / "prompts").string();
  std::ofstream(file) << "a\nsecond one\nthe third prompt of them\n";
  const std::string words = "--max-new-tokens 12 --json --prompts " + file + " --device ";
  const Ended cpu = generate(words + "cpu");
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  EXPECT_EQ(generate(words + "auto").out, cpu.out);
  const Ended gpu = generate(words + "cuda");
  if (testing::weft_has_gpu()) {
    EXPECT_EQ(gpu.out, cpu.out) << gpu.err;
  } else {
    EXPECT_EQ(gpu.exit_code, 2);
    EXPECT_EQ(gpu.out, "");
    EXPECT_NE(gpu.err.find("error: --device is cuda, but "), std::string::npos) << gpu.err;
    EXPECT_NE(gpu.err.find("hint: "), std::string::npos) << gpu.err;
  }
  EXPECT_EQ(generate(words + "tpu").exit_code, 2);
  for (const char* word : {"gpu", "cuda:0"}) {
    const Ended other = generate(words + word);
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_NE(other.err.find("did you mean \"cuda\"?"), std::string::npos) << other.err;
  }
}

}  // namespace
}  // namespace weft
