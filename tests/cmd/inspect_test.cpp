// tests/cmd/inspect_test.cpp: `weft inspect` names the kind of each file, and no raw byte reaches
// the terminal.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "io/torch_writer.h"
#include "tests/cmd/run_weft.h"

namespace weft {
namespace {

using testing::Ended;
using testing::run_weft;
using testing::TemporaryFolder;

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) || c == '\n' || c == '\t';
  });
}

TEST(Inspect, BinaryFilesAreNamedNotPrinted) {
  const TemporaryFolder folder;
  std::string bytes = "PK\x03\x04";
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i);
  for (const char* name : {"weights.bin", "other.model", "rows.txt", "noname"}) {
    write(folder / name, bytes);
    const Ended o = run_weft("inspect '" + (folder / name).string() + "'");
    EXPECT_EQ(o.exit_code, 0) << name << o.err;
    EXPECT_TRUE(is_printable(o.out)) << name;
    EXPECT_NE(o.out.find("kind: zip archive"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("bytes: 1004"), std::string::npos) << o.out;
  }
}

TEST(Inspect, ControlCharactersOfRowsAreEscaped) {
  const TemporaryFolder folder;
  write(folder / "a.txt", "red \x1b[31m and \x07 bell\n");
  const Ended o = run_weft("inspect '" + (folder / "a.txt").string() + "'");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(is_printable(o.out)) << o.out;
  EXPECT_NE(o.out.find("red \\x1b[31m and \\x07 bell"), std::string::npos) << o.out;
}

// Rows, columns and names appear in messages: their bytes must not control the terminal.
TEST(Inspect, ControlCharactersInMessagesAreEscaped) {
  const TemporaryFolder folder;
  const std::string bad = "col\x1b[2J\xC2\x9B";
  write(folder / "a.csv", bad + "," + bad + "\n1,2\n");  // the message quotes the column
  const Ended o = run_weft("inspect '" + (folder / "a.csv").string() + "'");
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_TRUE(is_printable(o.err)) << o.err;
  EXPECT_NE(o.err.find("col\\x1b[2J\\xc2\\x9b"), std::string::npos) << o.err;
  const Ended path = run_weft("inspect './no\x1b[31m\xffsuch'");
  EXPECT_EQ(path.exit_code, 2);
  EXPECT_NE(path.err.find("no\\x1b[31m\\xffsuch"), std::string::npos) << path.err;
  write(folder / "b.jsonl", "{\"text\": \"a\\u009b \\u007f\"}\n");
  const Ended json = run_weft("inspect --json '" + (folder / "b.jsonl").string() + "'");
  EXPECT_NE(json.out.find("a\\u009b \\u007f"), std::string::npos) << json.out;
  EXPECT_EQ(parse_json(json.out, "inspect").at("first_row").at("text").as_string(),
            "a\xC2\x9B \x7f");
}

TEST(Inspect, TokenizerFilesAreTokenizers) {
  const TemporaryFolder folder;
  write(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  write(folder / "merges.txt", "#version: 0.2\na b\n");
  for (const char* name : {"vocab.json", "merges.txt"}) {
    const Ended o = run_weft("inspect --json '" + (folder / name).string() + "'");
    ASSERT_EQ(o.exit_code, 0) << o.err;
    const Json found = parse_json(o.out, "inspect");
    EXPECT_EQ(found.at("kind").as_string(), std::string("tokenizer of ") + name);
    EXPECT_EQ(found.at("num_ids").as_int(), 4);  // and <|endoftext|>
  }
  write(folder / "spiece.model", "\n\x0e\n\x05 cut");
  const Ended cut = run_weft("inspect '" + (folder / "spiece.model").string() + "'");
  EXPECT_EQ(cut.exit_code, 2) << cut.out;
  EXPECT_NE(cut.err.find("spiece.model"), std::string::npos) << cut.err;
}

// Every bit of a storage counts, which reading alone does not notice.
TEST(Inspect, VerifyChecksFilesOfTorch) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2, 3, 4};
  for (const char* name : {"a.pt", "pytorch_model.bin", "other.bin"}) {
    PickleWriter pickle;
    pickle.dict([&] {
      pickle.text("w");
      pickle_tensor(pickle, 0, Dtype::kF32, {4});
    });
    FileWriter out(folder / name, FileWriter::Mode::kTruncate);
    TorchWriter torch(&out, pickle.finish(), {16});
    torch.write(values.data(), 16);
    torch.finish();
  }
  const auto verify = [&](const std::filesystem::path& path) {
    return run_weft("inspect --json --verify '" + path.string() + "'");
  };
  const Ended sound = verify(folder.path());
  ASSERT_EQ(sound.exit_code, 0) << sound.err;
  const Json::Array files = parse_json(sound.out, "verify").at("file").as_array();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_TRUE(files[1].at("path").as_string().ends_with("pytorch_model.bin"));
  EXPECT_GT(files[1].at("bytes_checked").as_int(), 16);
  EXPECT_EQ(verify(folder / "other.bin").exit_code, 0);  // where it is asked for

  std::string bytes = read_file(folder / "a.pt");
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(values.data()), 16));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 9] ^= 4;
  write(folder / "a.pt", bytes);
  for (const auto& path : {folder / "a.pt", folder.path()}) {
    const Ended damaged = verify(path);
    EXPECT_EQ(damaged.exit_code, 1) << damaged.out;
    EXPECT_NE(damaged.err.find("a.pt: member \"archive/data/0\" has the checksum"),
              std::string::npos)
        << damaged.err;
  }
  write(folder / "a.pt", bytes.substr(0, bytes.size() - 1));
  EXPECT_EQ(verify(folder / "a.pt").exit_code, 1);
  write(folder / "model.safetensors", "x");
  EXPECT_EQ(verify(folder / "model.safetensors").exit_code, 2);
}

TEST(Inspect, RunFileThatCannotTrainYetShowsItsBatches) {
  const TemporaryFolder folder;
  const std::string at = folder.path().string();
  std::filesystem::create_directory(folder / "model");
  write(folder / "model/config.json", R"({"model_type": "later"})");
  write(folder / "rows.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"de\"}\n");
  write(folder / "run.yaml", "name: x\nmodel: {path: " + at + "/model}\ndata:\n  train: [" + at +
                                 "/rows.jsonl]\n  tokenizer: bytes\n  seq_length: 8\n"
                                 "train: {optimizer: adamw8bit, global_batch: 2, steps: 1}\n");
  const std::string file = "'" + at + "/run.yaml'";
  const Ended o = run_weft("inspect --json --set data.shuffle=false " + file);
  ASSERT_EQ(o.exit_code, 0) << o.err;
  const Json found = parse_json(o.out, "inspect");
  EXPECT_EQ(found.at("not_built").as_array()[0].as_string(), "train.optimizer: adamw8bit");
  const Json& row = found.at("batches").as_array()[0].at("rows").as_array()[0];
  EXPECT_EQ(row.at("ids").dump(), "[97, 98, 99, 256, 256, 256, 256, 256]");
  EXPECT_EQ(row.at("targets").dump(), "[98, 99, -1, -1, -1, -1, -1, -1]");
  EXPECT_EQ(row.at("text").as_string(), "a\u27E6bc\u27E7");
  EXPECT_EQ(run_weft("train " + file).exit_code, 2);
  EXPECT_EQ(run_weft("inspect --set data.sufle=false " + file).exit_code, 2);
}

// Labels are in brackets, next to the ids, in every layout; control characters are escaped.
TEST(Inspect, RunFileShowsTheTextAndItsLabels) {
  const TemporaryFolder folder;
  const std::string at = folder.path().string();
  std::filesystem::create_directory(folder / "model");
  write(folder / "model/config.json", R"({"model_type": "llama"})");
  write(folder / "rows.jsonl",
        "{\"q\": \"ask\\n\", \"a\": \"y\\u001bes\"}\n{\"q\": \"b\\n\", \"a\": \"\xC3\xA9\"}\n");
  write(folder / "run.yaml", "name: x\nmodel: {path: " + at + "/model}\ndata:\n  train: [" + at +
                                 "/rows.jsonl]\n  tokenizer: bytes\n  seq_length: 24\n"
                                 "  source: \"{q}\"\n  target: \"{a}\"\n  shuffle: false\n"
                                 "train: {global_batch: 2, steps: 1}\n");
  const std::string file = "'" + at + "/run.yaml'";
  const std::string first =
      "ask\n\u27E6y\x1b"
      "es<|endoftext|>\u27E7";
  const std::string second = "b\n\u27E6\xC3\xA9<|endoftext|>\u27E7";
  const auto rows_of = [](const Ended& o) {
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return parse_json(o.out, "inspect").at("batches").as_array()[0].at("rows").as_array();
  };
  const Json::Array rows = rows_of(run_weft("inspect --json " + file));
  EXPECT_EQ(rows.at(0).at("text").as_string(), first);
  EXPECT_EQ(rows.at(1).at("text").as_string(), second);
  const Json packed = rows_of(run_weft("inspect --json --set data.layout=pack "
                                       "--set train.global_batch=1 " +
                                       file))
                          .at(0);
  EXPECT_EQ(packed.at("texts"), Json(Json::Array{first, second}));
  const Ended plain = run_weft("inspect " + file);
  EXPECT_TRUE(is_printable(plain.out)) << plain.out;
  EXPECT_NE(
      plain.out.find("    text:\n      ask\n      \u27E6y\\x1bes<|endoftext|>\u27E7\n    ids: ["),
      std::string::npos)
      << plain.out;
  write(folder / "model/config.json", R"({"model_type": "t5", "is_encoder_decoder": true,
        "vocab_size": 300, "decoder_start_token_id": 0})");
  const Json pair = rows_of(run_weft("inspect --json " + file)).at(0);
  EXPECT_EQ(pair.at("source_text").as_string(), "ask\n");
  EXPECT_EQ(pair.at("text").as_string(),
            "\u27E6y\x1b"
            "es<|endoftext|>\u27E7");
}

TEST(Inspect, FolderWithOnlyAConfigurationShowsTheShape) {
  const TemporaryFolder folder;
  write(folder / "config.json",
        R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
            "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
            "vocab_size": 10, "tie_word_embeddings": true})");
  const std::string path = "'" + folder.path().string() + "'";
  const Ended o = run_weft("inspect --json " + path);
  ASSERT_EQ(o.exit_code, 0) << o.err;
  const Json found = parse_json(o.out, "inspect");
  EXPECT_EQ(found.at("hidden_size").as_int(), 8);
  EXPECT_EQ(found.at("parameters").as_int(), 10 * 8 + 4 * 8 * 8 + 3 * 8 * 16 + 3 * 8);
  EXPECT_EQ(found.at("weights").as_string().substr(0, 6), "absent");
  write(folder / "config.json", R"({"model_type": "later", "hidden_size": 8})");
  EXPECT_NE(run_weft("inspect " + path).out.find("weights: absent"), std::string::npos);
}

TEST(Inspect, FolderOfRowsIsData) {
  const TemporaryFolder folder;
  const std::string path = "'" + folder.path().string() + "'";
  const Ended empty = run_weft("inspect " + path);
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_NE(empty.err.find("holds no model"), std::string::npos) << empty.err;
  write(folder / "a.txt", "one\ntwo\n");
  write(folder / "b.jsonl", "{\"text\": \"three\"}\n");
  const Ended o = run_weft("inspect --json " + path);
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(parse_json(o.out, "inspect").at("rows").as_int(), 3);
}

TEST(Inspect, OptionsWithoutEffectAreRejected) {
  const TemporaryFolder folder;
  write(folder / "a.txt", "one\ntwo\n");
  write(folder / "run.yaml", "name: x\n");
  write(folder / "b.model", std::string("PK\x03\x04\0\0", 6));
  const auto expect = [&](const char* words, const char* file, const char* told) {
    const Ended o =
        run_weft(std::string("inspect ") + words + " '" + (folder / file).string() + "'");
    EXPECT_EQ(o.exit_code, 2) << words << o.out;
    EXPECT_NE(o.err.find(told), std::string::npos) << words << o.err;
  };
  expect("--batches 2", "a.txt", "--rows N shows rows");
  expect("--set data.limit=1", "a.txt", "is data, not a run file");
  expect("--rows 2", "run.yaml", "--batches N");
  expect("--tokenizer bytes", "run.yaml", "--tokenizer has no effect here");
  expect("--rows 2", "b.model", "neither data nor a run file");
  expect("--text '{text}'", "a.txt", "--text requires --tokenizer");
  expect("--rows -1", "a.txt", "--rows: wanted a whole number >= 0, got -1");
  const Ended diff = run_weft("verify --max-diff -1 --layouts 'dp=1; tp=2' run.yaml");
  EXPECT_NE(diff.err.find("--max-diff: wanted a number >= 0, got -1"), std::string::npos)
      << diff.err;
  EXPECT_EQ(run_weft("inspect --rows 1 --tokenizer bytes --text '{text}' '" +
                     (folder / "a.txt").string() + "'")
                .exit_code,
            0);
}

TEST(Inspect, AMistypedPathIsNotAHubName) {
  const Ended o = run_weft("inspect ./rowz.jsonl");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_NE(o.err.find("there is no folder or file ./rowz.jsonl"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("hf download"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace weft
