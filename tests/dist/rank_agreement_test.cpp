// tests/dist/rank_agreement_test.cpp: what the ranks of a run must agree on, and what happens where
// not.
#include "train/rank_agreement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/error.h"
#include "tests/dist/mesh_run.h"
#include "train/next_batch.h"

namespace weft::testing {
namespace {

// What each of n ranks threw, or "".
std::vector<std::string> errors_of_ranks(int n, const std::function<void(Ranks&)>& body,
                                         int tp = 1) {
  Layout layout;
  layout.dp = n / tp;
  layout.tp = tp;
  WorldOptions options;
  options.num_ranks = n;
  const auto world = ShmWorld::create(options);
  std::vector<std::string> thrown(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      try {
        Ranks ranks(layout, world, r);
        body(ranks);
      } catch (const Error& e) {
        thrown[static_cast<size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return thrown;
}

TEST(Agree, AnotherRunFileOtherRowsOrOtherNumericsAreRefusedOnAllRanks) {
  const Json numerics(Json::Object{{"kernels", "neon"}, {"probe", "00ff"}});
  const RankInputs usual{"name: a\nseed: 1\n", "a.txt, 7 bytes\nb.txt, 9 bytes\n", numerics,
                         "config.json, 3 bytes\n"};
  const auto alike = errors_of_ranks(3, [&](Ranks& ranks) { agree_on_inputs(ranks, usual); });
  EXPECT_EQ(alike, std::vector<std::string>(3));
  struct Case {
    const char *key, *value, *told;
  };
  // Both sides are named, on every rank.
  for (const Case& c :
       {Case{"kernels", "ref", "kernels: neon on rank 0, ref on rank 2"},
        Case{"probe", "00fe", "probe: 00ff on rank 0, 00fe on rank 2"},
        Case{"run", "", "run file: \"seed: 1\" on rank 0, \"seed: 2\" on rank 2"},
        Case{"data", "",
             "data file (name, size, hash of a sample): \"b.txt, 9 bytes\" on rank 0, "
             "\"b.txt, 8 bytes\" on rank 2"},
        Case{"model", "",
             "model file (name, size, hash of the file or of a sample): \"config.json, 3 bytes\" "
             "on rank "
             "0, \"config.json, 4 bytes\" on rank 2"}}) {
    const auto thrown = errors_of_ranks(3, [&](Ranks& ranks) {
      RankInputs mine = usual;
      if (ranks.rank() == 2) {
        if (c.key == std::string("run"))
          mine.run = "name: a\nseed: 2\n";
        else if (c.key == std::string("model"))
          mine.model = "config.json, 4 bytes\n";
        else if (c.key == std::string("data"))
          mine.data = "a.txt, 7 bytes\nb.txt, 8 bytes\n";
        else
          mine.numerics.set(c.key, Json(c.value));
      }
      agree_on_inputs(ranks, mine);
    });
    for (const std::string& text : thrown) {
      EXPECT_NE(text.find("rank 2 does not match rank 0"), std::string::npos) << text;
      EXPECT_NE(text.find(c.told), std::string::npos) << text;
    }
  }
}

// Two ranks on each of two machines, of which the first ones have read the files.
TEST(Agree, FilesAreComparedBetweenNodesWhichAreNamed) {
  const auto host_of = [](int rank) {
    return RankHost{rank < 2 ? "anna" : "bert", rank < 2 ? 0 : 2};
  };
  for (const bool differs : {false, true}) {
    const auto thrown = errors_of_ranks(4, [&](Ranks& ranks) {
      const RankHost host = host_of(ranks.rank());
      EXPECT_TRUE(has_several_hosts(ranks, host));
      EXPECT_FALSE(has_several_hosts(ranks, RankHost{"anna", 0}));
      const std::string b = differs && ranks.rank() == 2 ? "b, 2\n" : "b, 1\n";
      agree_on_files(ranks, host, "model file", ranks.rank() % 2 == 0 ? "a, 1\n" + b : "");
    });
    for (const std::string& text : thrown) {
      const char* wanted = !differs
                               ? ""
                               : "rank 2 on node 1 (bert) reads a different file than rank 0 on "
                                 "node 0 (anna): model file: \"b, 1\" on rank 0, \"b, 2\" on "
                                 "rank 2";
      EXPECT_EQ(text.substr(0, text.find('\n')), wanted);
    }
  }
}

// The failing rank's exit ends the others: not before they have logged their save.
TEST(Agree, FailedRowsEndNoRankBeforeAllHaveSaved) {
  std::atomic<bool> has_logged = false;
  const auto thrown = errors_of_ranks(2, [&](Ranks& ranks) {
    if (ranks.rank() == 1) {
      try {
        end_with_error(ranks, std::make_exception_ptr(RunError("rows changed")));
      } catch (const RunError& e) {
        EXPECT_TRUE(has_logged);
        ranks.world().abort(e.what());
        throw;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    has_logged = true;
    end_with_error(ranks, nullptr);
  });
  EXPECT_EQ(thrown[1], "rows changed");
  EXPECT_NE(thrown[0].find("rows changed"), std::string::npos) << thrown[0];
}

// A lost peer must not hide an error.
TEST(Agree, FailedRowsKeepTheirErrorWhereAPeerIsLost) {
  const auto thrown = errors_of_ranks(2, [](Ranks& ranks) {
    if (ranks.rank() == 0) return ranks.world().abort("killed");
    end_with_error(ranks, std::make_exception_ptr(RunError("rows changed")));
  });
  EXPECT_EQ(thrown[1], "rows changed");
}

// Every count is the sum over the groups of data parallelism, each counted once.
TEST(Agree, CountersAreSummed) {
  const auto thrown = errors_of_ranks(
      4,
      [](Ranks& ranks) {
        DataCounters mine;
        int64_t next = 10 * (ranks.dp_rank() + 1);
        for (const auto count : kDataCounts) mine.*count = next++;
        const DataCounters all = sum_counters(ranks, mine);
        int64_t wanted = 30;
        for (const auto count : kDataCounts) {
          if (all.*count != wanted) throw BugError(fmt::format("{} for {}", all.*count, wanted));
          wanted += 2;
        }
      },
      2);
  EXPECT_EQ(thrown, std::vector<std::string>(4));
}

// A tensor group computes the same rows; other groups have other rows.
TEST(Agree, AnotherBatchIsNamed) {
  for (const bool positions : {false, true}) {
    const auto thrown = errors_of_ranks(
        4,
        [&](Ranks& ranks) {
          const auto seed = static_cast<uint64_t>(ranks.dp_rank());
          Batch batch = random_batch(4, 8, 50, seed, true);
          compare_batches(ranks, batch, 3);
          if (ranks.rank() == 1) batch.values(positions ? "positions" : "targets")[5] ^= 1;
          compare_batches(ranks, batch, 4);
        },
        2);
    for (const size_t r : {size_t{0}, size_t{1}}) {
      EXPECT_NE(thrown[r].find("rank 1"), std::string::npos) << thrown[r];
      EXPECT_NE(thrown[r].find("step 4"), std::string::npos) << thrown[r];
    }
    EXPECT_EQ(thrown[2] + thrown[3], "");
  }
}

TEST(Agree, AnotherPlaceInTheDataOrAnotherLengthIsNamed) {
  for (const bool length : {false, true}) {
    const auto thrown = errors_of_ranks(3, [&](Ranks& ranks) {
      Batch batch = random_batch(4, 8, 50, 1);
      if (ranks.rank() == 2) (length ? batch.padded.target : batch.after.part) += 8;
      compare_batches(ranks, batch, 7);
    });
    for (const std::string& text : thrown) {
      EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
      EXPECT_NE(text.find("step 7"), std::string::npos) << text;
    }
  }
}

TEST(Agree, RankZerosResultIsShared) {
  std::vector<RunStart> starts(3);
  std::vector<int64_t> numbers(3);
  std::vector<int> signals(3);
  errors_of_ranks(3, [&](Ranks& ranks) {
    const auto r = static_cast<size_t>(ranks.rank());
    RunStart mine;
    if (r == 0) {
      mine.dir = "runs/a";
      mine.checkpoint = "runs/a/checkpoints/step-00000004";
      mine.is_of_other_run = true;
    }
    starts[r] = agree_on_start(ranks, mine);
    numbers[r] = agree_on_number(ranks, [&] { return static_cast<int64_t>(40 + r); });
    signals[r] = agree_on_signal(ranks, r == 1 ? 15 : 0);
    EXPECT_FALSE(agree_on_success(ranks.world(), r != 2));
    EXPECT_TRUE(agree_on_success(ranks.world(), true));
  });
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(starts[r].dir, "runs/a");
    EXPECT_EQ(starts[r].checkpoint, "runs/a/checkpoints/step-00000004");
    EXPECT_TRUE(starts[r].is_of_other_run);
    EXPECT_EQ(numbers[r], 40);
    EXPECT_EQ(signals[r], 15);
  }
}

}  // namespace
}  // namespace weft::testing
