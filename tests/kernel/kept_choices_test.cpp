// tests/kernel/kept_choices_test.cpp: processes of one machine choose alike.
#include "kernel/gpu/kept_choices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/io/temporary_folder.h"

namespace weft::testing {
namespace {

const char* const kHere = "weft products 1 | a GPU";

LtProblem product(int64_t k) {
  LtProblem p;
  p.m = 64, p.n = 32, p.k = k, p.lda = p.ldb = k, p.ldc = p.ldd = 64;
  p.dtype = p.d_dtype = Dtype::kF32;
  p.alignment = 256;
  return p;
}

LtAlgorithm numbered(uint64_t number) {
  LtAlgorithm algorithm;
  algorithm.data[0] = number;
  return algorithm;
}

bool accepts_all(LtAlgorithm*) { return true; }

KeptChoices::Measured must_not_measure() {
  ADD_FAILURE() << "it was measured again";
  return {numbered(99), false};
}

// Each has an object of its own, as processes have, and would choose another algorithm.
TEST(KeptChoices, WhoMeetsAProductAtTheSameTimeUsesOneChoice) {
  const TemporaryFolder folder;
  std::atomic<int> num_measured = 0;
  std::vector<LtAlgorithm> chosen(4);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      KeptChoices kept(kHere, folder / "weft/gemm.txt");
      chosen[i] = kept.choose(product(64), accepts_all, [&] {
        ++num_measured;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return KeptChoices::Measured{numbered(i + 1), true};
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_measured, 1);
  for (const LtAlgorithm& algorithm : chosen) EXPECT_EQ(algorithm, chosen[0]);
  KeptChoices later(kHere, folder / "weft/gemm.txt");
  EXPECT_EQ(later.choose(product(64), accepts_all, must_not_measure), chosen[0]);
}

TEST(KeptChoices, WhatIsNotAcceptedIsMeasuredAndReplaced) {
  const TemporaryFolder folder;
  const auto measure = [](uint64_t number) {
    return [number] { return KeptChoices::Measured{numbered(number), true}; };
  };
  KeptChoices first(kHere, folder / "gemm.txt");
  first.choose(product(64), accepts_all, measure(1));
  first.choose(product(128), accepts_all, measure(2));
  KeptChoices second(kHere, folder / "gemm.txt");
  const auto accepts_none = [](LtAlgorithm*) { return false; };
  EXPECT_EQ(second.choose(product(64), accepts_none, measure(3)), numbered(3));
  KeptChoices third(kHere, folder / "gemm.txt");
  EXPECT_EQ(third.choose(product(64), accepts_all, must_not_measure), numbered(3));
  EXPECT_EQ(third.choose(product(128), accepts_all, must_not_measure), numbered(2));
}

// Without memory for a trial nothing was measured; without a home nothing is stored.
TEST(KeptChoices, AGuessIsNotStoredAndNoFolderIsNoError) {
  const TemporaryFolder folder;
  const auto guess = [] { return KeptChoices::Measured{numbered(7), false}; };
  for (const std::filesystem::path& path :
       {std::filesystem::path(folder / "gemm.txt"), std::filesystem::path()}) {
    KeptChoices kept(kHere, path);
    EXPECT_EQ(kept.choose(product(64), accepts_all, guess), numbered(7));
    EXPECT_EQ(kept.find(product(64)), nullptr);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "gemm.txt"));
}

}  // namespace
}  // namespace weft::testing
