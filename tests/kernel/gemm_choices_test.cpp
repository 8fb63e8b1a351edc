// tests/kernel/gemm_choices_test.cpp: stored choices are read back, and nothing else is.
#include "kernel/gpu/gemm_choices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"

namespace weft {
namespace {

const char* const kHere = "weft products 1 | NVIDIA H200 | compute 9.0 | cublasLt 130100";

GemmChoices some() {
  GemmChoices choices;
  for (int64_t i = 1; i <= 20; ++i) {
    LtProblem p;
    p.m = 1152, p.n = 8192, p.k = 64 * i, p.lda = p.ldb = p.k, p.ldc = p.ldd = 1152;
    p.a_transposed = true, p.has_bias = i % 2 == 0, p.adds_c = i % 3 == 0;
    p.dtype = Dtype::kBf16, p.d_dtype = i % 2 ? Dtype::kF32 : Dtype::kBf16;
    p.alignment = 256;
    LtAlgorithm algorithm;
    for (uint64_t& word : algorithm.data) word = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(i);
    algorithm.workspace_bytes = static_cast<uint64_t>(i) << 20;
    choices[p] = algorithm;
  }
  return choices;
}

TEST(GemmChoices, RoundTrip) {
  for (const GemmChoices& choices : {GemmChoices{}, some()}) {
    std::string why;
    const auto read = parse_gemm_choices(gemm_choices_text(kHere, choices), kHere, &why);
    ASSERT_TRUE(read.has_value()) << why;
    EXPECT_TRUE(*read == choices);
  }
}

// TF32 or not makes two products: a choice for one is never used for the other.
TEST(GemmChoices, Tf32IsASeparateProduct) {
  LtProblem plain = some().begin()->first;
  plain.dtype = plain.d_dtype = Dtype::kF32;
  LtProblem tf32 = plain;
  tf32.is_tf32 = true;
  EXPECT_FALSE(plain == tf32);
  EXPECT_NE(LtProblemHash()(plain), LtProblemHash()(tf32));
  EXPECT_NE(describe(plain), describe(tf32));
  LtAlgorithm first, second;
  first.data[0] = 1;
  second.data[0] = 2;
  for (const GemmChoices& choices : {GemmChoices{{plain, first}}, GemmChoices{{tf32, second}},
                                     GemmChoices{{plain, first}, {tf32, second}}}) {
    std::string why;
    const auto read = parse_gemm_choices(gemm_choices_text(kHere, choices), kHere, &why);
    ASSERT_TRUE(read.has_value()) << why;
    EXPECT_TRUE(*read == choices);
  }
}

// A file from before TF32: its choices are valid, for fp32.
TEST(GemmChoices, FilesFromBeforeTf32AreRead) {
  const std::string body =
      "weft products 1 | a GPU\n"
      "64 32 16 16 16 64 64 1 0 0 1 0 0 256 4096 1 2 3 4 5 6 7 8\n";
  std::string why;
  const auto read = parse_gemm_choices(body + "end 1 " + hash_hex(hash_text(body)) + "\n",
                                       "weft products 1 | a GPU", &why);
  ASSERT_TRUE(read.has_value()) << why;
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ(read->begin()->first.dtype, Dtype::kF32);
  EXPECT_FALSE(read->begin()->first.is_tf32);
  EXPECT_EQ(gemm_choices_text("weft products 1 | a GPU", *read).substr(0, body.size()), body);
}

TEST(GemmChoices, OfAnotherDeviceAreIgnored) {
  std::string why;
  const std::string text = gemm_choices_text(kHere, some());
  EXPECT_FALSE(parse_gemm_choices(text, "weft products 1 | NVIDIA A100", &why).has_value());
  EXPECT_EQ(why, "it was measured on something else");
}

TEST(GemmChoices, DamageIsDetected) {
  const std::string text = gemm_choices_text(kHere, some());
  for (size_t length = 0; length < text.size(); length += 7) {
    std::string why;
    EXPECT_FALSE(parse_gemm_choices(text.substr(0, length), kHere, &why).has_value()) << length;
  }
  for (size_t at = 0; at < text.size(); at += 3) {
    std::string changed = text, why;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(parse_gemm_choices(changed, kHere, &why).has_value()) << at;
  }
  std::string why;
  EXPECT_FALSE(parse_gemm_choices(text + "more\n", kHere, &why).has_value());
  EXPECT_FALSE(parse_gemm_choices(text + text, kHere, &why).has_value());
}

// A forged line may come with a matching hash: its numbers are validated too.
TEST(GemmChoices, NumbersOutOfRangeAreIgnored) {
  const auto with = [](auto change) {
    LtProblem p = some().begin()->first;
    LtAlgorithm algorithm;
    change(&p, &algorithm);
    std::string why;
    return parse_gemm_choices(gemm_choices_text(kHere, {{p, algorithm}}), kHere, &why).has_value();
  };
  EXPECT_TRUE(with([](LtProblem*, LtAlgorithm*) {}));
  EXPECT_FALSE(with([](LtProblem* p, LtAlgorithm*) { p->m = 0; }));
  EXPECT_FALSE(with([](LtProblem* p, LtAlgorithm*) { p->ldd = -8; }));
  EXPECT_FALSE(with([](LtProblem* p, LtAlgorithm*) { p->alignment = 2; }));
  EXPECT_FALSE(with([](LtProblem* p, LtAlgorithm*) { p->dtype = Dtype::kI64; }));
  EXPECT_FALSE(with([](LtProblem* p, LtAlgorithm*) { p->is_tf32 = true; }));  // of bf16
  EXPECT_FALSE(with([](LtProblem*, LtAlgorithm* a) { a->workspace_bytes = uint64_t{1} << 40; }));
}

TEST(GemmChoices, TheFileGrowsAndSurvivesDamage) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("weft_choices_" + std::to_string(::getpid()));
  const auto path = folder / "weft" / "gemm.txt";
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(load_gemm_choices(path, kHere).empty());
  GemmChoices first, second;
  for (const auto& [problem, algorithm] : some()) {
    (problem.k < 640 ? first : second)[problem] = algorithm;
  }
  save_gemm_choices(path, kHere, first);
  EXPECT_TRUE(load_gemm_choices(path, kHere) == first);
  save_gemm_choices(path, kHere, second);
  EXPECT_TRUE(load_gemm_choices(path, kHere) == some());
  write_file_atomic(path, "weft products");
  EXPECT_TRUE(load_gemm_choices(path, kHere).empty());
  save_gemm_choices(path, kHere, second);
  EXPECT_TRUE(load_gemm_choices(path, kHere) == second);
  EXPECT_TRUE(load_gemm_choices(path, "another").empty());
  save_gemm_choices(folder / "weft" / "gemm.txt" / "under a file", kHere, first);  // a log line
  std::filesystem::remove_all(folder);
}

TEST(GemmChoices, ThePathNamesDeviceAndVersion) {
  const auto path = gemm_choices_path("NVIDIA H200/../x", 130100);
  EXPECT_EQ(path.filename(), "gemm-NVIDIA_H200____x-130100.txt");
}

}  // namespace
}  // namespace weft
