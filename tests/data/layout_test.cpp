// tests/data/layout_test.cpp: dynamic and packed batches; shares of ranks, also of pairs.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <set>

#include "data/batches.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

std::string lines_of(std::mt19937& random, int n, int longest) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    const auto length = static_cast<size_t>(random() % static_cast<unsigned>(longest));
    std::string line = std::to_string(i) + ":";
    while (line.size() < length) line += static_cast<char>('a' + random() % 26);
    text += (random() % 9 == 0 ? "" : line) + "\n";
  }
  return text;
}

// Rows of 3, 70, 2 and 5 tokens in file order, padded as `options` says.
class DynamicLayout : public ::testing::Test {
 protected:
  BatchStream open(const StreamOptions& options) {
    config_.seq_length = 512;
    config_.layout = "dynamic";
    config_.shuffle = false;
    return BatchStream(config_, *rows_, *tokenizer_, options);
  }
  const std::unique_ptr<Tokenizer> tokenizer_ = make_bytes_tokenizer();
  const std::unique_ptr<RowSource> rows_ =
      rows_in_memory("abc\n" + std::string(70, 'x') + "\nde\nfghij\n", RowFormat::kText, "t");
  DataConfig config_;
  Batch batch_;
};

TEST_F(DynamicLayout, PadsToABucketOfTheLongest) {
  StreamOptions options;
  options.global_batch = 2;
  BatchStream stream = open(options);
  ASSERT_TRUE(stream.next(batch_));
  EXPECT_EQ(batch_.padded.target, 80);
  EXPECT_EQ(batch_.values("ids").size(), 160u);
  EXPECT_EQ(batch_.tokens, 73);
  EXPECT_EQ(batch_.positions, 160);
  EXPECT_EQ(batch_.counted.padding, 87);
  ASSERT_TRUE(stream.next(batch_));
  EXPECT_EQ(batch_.padded.target, 16);
  EXPECT_EQ(batch_.target_tokens, 1 + 4);
}

// By the pass: rows keep their places, and each pass tells how much of them it needs.
TEST_F(DynamicLayout, ByThePassPadsToTheLongestOfEach) {
  StreamOptions options;
  options.global_batch = 4;
  options.rows_per_pass = 2;
  BatchStream stream = open(options);
  ASSERT_TRUE(stream.next(batch_));
  EXPECT_EQ(batch_.padded.target, 80);
  EXPECT_EQ(batch_.values("ids").size(), 320u);
  EXPECT_EQ(batch_.pass_lengths, (std::vector<Lengths>{{80, 0}, {16, 0}}));
  EXPECT_EQ(batch_.positions, 2 * 80 + 2 * 16);
  EXPECT_EQ(batch_.counted.padding, batch_.positions - (3 + 70 + 2 + 5));
}

// The rows of packed batches, taken apart again, are the rows of the file.
TEST(Layout, PackedBatchesHoldEveryTokenOnce) {
  const auto tokenizer = make_bytes_tokenizer();
  std::mt19937 random(11);
  for (int trial = 0; trial < 10; ++trial) {
    const std::string text = lines_of(random, 9000, 60);
    const auto rows = rows_in_memory(text, RowFormat::kText, "t");
    DataConfig config;
    config.seq_length = 32;
    config.layout = "pack";
    StreamOptions options;
    options.seed = random();
    options.global_batch = 1;
    BatchStream stream(config, *rows, *tokenizer, options);
    const int64_t steps = stream.count_steps_per_epoch();
    std::map<std::string, std::string> pieces;  // by row number
    Batch batch;
    int64_t tokens = 0, targets = 0, segments = 0;
    for (int64_t step = 0; step < steps; ++step) {
      ASSERT_TRUE(stream.next(batch));
      ASSERT_EQ(batch.epoch, 1);
      tokens += batch.tokens;
      targets += batch.target_tokens;
      for (size_t t = 0; t < 32; ++t) {
        const bool used = t < static_cast<size_t>(batch.values("lengths")[0]);
        ASSERT_EQ(batch.values("segments")[t] > 0, used);
        if (!used) {
          ASSERT_EQ(batch.values("targets")[t], -1);
          continue;
        }
        const bool begins =
            t == 0 || batch.values("segments")[t] != batch.values("segments")[t - 1];
        segments += begins;
        ASSERT_EQ(batch.values("positions")[t], begins ? 0 : batch.values("positions")[t - 1] + 1);
        const bool goes_on =
            t + 1 < 32 && batch.values("segments")[t + 1] == batch.values("segments")[t];
        ASSERT_EQ(batch.values("targets")[t], goes_on ? batch.values("ids")[t + 1] : -1);
      }
    }
    EXPECT_TRUE(batch.is_epoch_end);
    const DataCounters& c = stream.counters();
    int64_t wanted = 0, dropped = 0, split = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      const auto n = static_cast<int64_t>(end - at);
      wanted += n > 1 ? n : 0;
      dropped += n <= 1;
      split += n > 32;
      at = end + 1;
    }
    EXPECT_EQ(tokens, wanted);
    EXPECT_EQ(targets, wanted - segments);
    EXPECT_EQ(c.dropped, dropped);
    EXPECT_EQ(c.split, split);
    EXPECT_GT(c.efficiency(), 0.97);
    ASSERT_TRUE(stream.next(batch));
    EXPECT_EQ(batch.epoch, 2);
  }
}

// One case of the property: what the stream is asked for.
struct Case {
  DataConfig config;
  StreamOptions options;
  std::string text;
  bool has_pairs() const { return options.kind == ModelKind::kEncoderDecoder; }
  std::unique_ptr<RowSource> rows() const {
    return rows_in_memory(text, has_pairs() ? RowFormat::kJsonLines : RowFormat::kText, "t");
  }
};

// Each line, cut somewhere, as question and answer.
std::string pairs_of(std::mt19937& random, const std::string& lines) {
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at), cut = at + random() % (end - at + 1);
    text += fmt::format("{{\"q\":\"{}\",\"a\":\"{}\"}}\n", lines.substr(at, cut - at),
                        lines.substr(cut, end - cut));
    at = end + 1;
  }
  return text;
}

// All that a batch says of its row b, padding and its width aside.
std::vector<int32_t> row_of(const Batch& batch, int64_t b) {
  std::vector<int32_t> out;
  const auto put = [&](const char* name, int64_t width, const char* lengths) {
    if (!batch.find(name)) return;
    const auto begin = batch.values(name).begin() + b * width;
    out.insert(out.end(), begin, begin + batch.values(lengths)[static_cast<size_t>(b)]);
    out.push_back(-2);
  };
  for (const char* name : {"ids", "targets", "segments", "positions"})
    put(name, batch.padded.target, "lengths");
  for (const char* name : {"source_ids", "source_segments", "source_positions"})
    put(name, batch.padded.source, "source_lengths");
  return out;
}

Case draw_case(std::mt19937& random) {
  const auto draw = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  Case c;
  c.text = lines_of(random, draw(40, 1500), 40);
  if (draw(0, 1)) {
    c.text = pairs_of(random, c.text);
    c.config.source = "{q}";
    c.config.target = "{a}";
    c.config.target_length = draw(4, 30);
    c.options.kind = ModelKind::kEncoderDecoder;
    c.options.decoder_start_id = 0;
  }
  const char* layouts[] = {"pad", "dynamic", "pack"};
  c.config.layout = layouts[draw(0, 2)];
  c.config.seq_length = draw(8, 40);
  c.config.shuffle = draw(0, 3) > 0;
  c.config.drop_empty = draw(0, 1);
  c.config.eval_fraction = draw(0, 1) * 0.2;
  c.config.fraction = draw(0, 1) ? 1.0 : 0.7;
  c.options.seed = random();
  c.options.global_batch = 4 * draw(1, 2);
  c.options.part = c.config.eval_fraction > 0 ? Part::kTrain : Part::kAll;
  c.options.cache.num_threads = draw(1, 3);
  return c;
}

// The rows of `steps` global batches, put together from the shares of dp ranks.
std::vector<std::vector<int32_t>> rows_of(const Case& c, const RowSource& rows, int64_t dp,
                                          const StreamState& from, int steps, StreamState* after,
                                          int64_t rows_per_turn = 0) {
  const auto tokenizer = make_bytes_tokenizer();
  std::vector<std::unique_ptr<BatchStream>> ranks;
  for (int64_t r = 0; r < dp; ++r) {
    StreamOptions o = c.options;
    o.dp = dp;
    o.dp_rank = r;
    o.rows_per_turn = rows_per_turn;
    ranks.push_back(std::make_unique<BatchStream>(c.config, rows, *tokenizer, o));
    ranks.back()->restore(from);
  }
  std::vector<std::vector<int32_t>> out;
  std::set<std::pair<int64_t, int64_t>> numbers;  // epoch, row
  std::vector<Batch> batches(ranks.size());
  const int64_t share = c.options.global_batch / dp,
                turn = rows_per_turn > 0 ? rows_per_turn : share;
  for (int s = 0; s < steps; ++s) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r]->next(batches[r]);
      EXPECT_EQ(batches[r].num_rows, share);
      EXPECT_EQ(batches[r].padded, batches[0].padded);
    }
    for (int64_t k = 0; k < c.options.global_batch; ++k) {
      const Batch& batch = batches[static_cast<size_t>(k / turn % dp)];
      const int64_t b = k / (turn * dp) * turn + k % turn;
      out.push_back(row_of(batch, b));
      // A number of its own goes with a row, whichever rank has it.
      const auto own = batch.values<int64_t>("rows").subspan(2 * static_cast<size_t>(b), 2);
      EXPECT_EQ(own[0], batch.epoch);
      const int64_t number = own[1];
      EXPECT_TRUE(numbers.insert({batch.epoch, number}).second);
      out.back().push_back(static_cast<int32_t>(batch.epoch));
      out.back().push_back(static_cast<int32_t>(number >> 32));
      out.back().push_back(static_cast<int32_t>(number));
    }
    for (auto& rank : ranks) EXPECT_EQ(rank->state(), ranks[0]->state());
  }
  *after = ranks[0]->state();
  return out;
}

TEST(Shares, SameOrderForEveryDpAndAfterEveryStop) {
  std::mt19937 random(5);
  std::map<std::string, std::map<bool, int>> tried;
  for (int trial = 0; trial < 200; ++trial) {
    const Case c = draw_case(random);
    const auto rows = c.rows();
    const auto before = static_cast<int>(random() % 12), more = 1 + static_cast<int>(random() % 12);
    StreamState end, middle, again;
    std::vector<std::vector<int32_t>> whole;
    try {
      whole = rows_of(c, *rows, 1, {}, before + more, &end);
    } catch (const UserError&) {
      continue;  // fewer rows than a batch
    }
    const int64_t dps[] = {1, 2, 4};
    const int64_t first_dp = dps[random() % 3], second_dp = dps[random() % 3];
    auto parts = rows_of(c, *rows, first_dp, {}, before, &middle);
    const auto rest = rows_of(c, *rows, second_dp, before == 0 ? StreamState{} : middle, more,
                              &again, static_cast<int64_t>(random() % 2));
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, whole) << "trial " << trial << ", " << c.config.layout
                            << (c.has_pairs() ? " of pairs" : "") << ", dp " << first_dp << " then "
                            << second_dp;
    ++tried[c.config.layout][c.has_pairs()];
    ASSERT_EQ(again, end);
    // The control: one row less, other batches.
    const bool packs = c.config.layout == "pack";
    if (before > 0 && (packs ? middle.part : middle.position) > 0) {
      (packs ? middle.part : middle.position) -= 1;
      EXPECT_NE(rows_of(c, *rows, 1, middle, more, &again), rest) << trial;
    }
  }
  for (const auto& [layout, counts] : tried) {
    EXPECT_GT(counts.at(false), 15) << layout;
    EXPECT_GT(counts.at(true), 15) << layout << " of pairs";
  }
}

// An evaluation whose last batch is short: every row on one rank, and all ranks end together.
TEST(Shares, OfAnEvaluationHoldEveryRowOnce) {
  const auto tokenizer = make_bytes_tokenizer();
  std::string text;
  for (int i = 0; i < 21; ++i) text += std::string(2 + static_cast<size_t>(i) * 3 % 17, 'a') + "\n";
  const auto rows = rows_in_memory(text, RowFormat::kText, "t");
  for (const char* layout : {"pad", "dynamic", "pack"}) {
    for (const int64_t turn : {0, 1}) {
      std::map<int64_t, std::array<int64_t, 4>> found;  // by dp: batches, rows, targets, padding
      for (const int64_t dp : {1, 2, 4}) {
        std::array<int64_t, 4>& sums = found[dp];
        int64_t batches = 0;
        for (int64_t r = 0; r < dp; ++r) {
          DataConfig config;
          config.layout = layout;
          config.seq_length = 20;
          StreamOptions o;
          o.global_batch = 8;
          o.once = true;
          o.dp = dp;
          o.dp_rank = r;
          o.rows_per_turn = turn;
          BatchStream stream(config, *rows, *tokenizer, o);
          Batch batch;
          int64_t count = 0;
          for (; stream.next(batch); ++count) sums[2] += batch.target_tokens;
          sums[1] += stream.counters().rows;
          sums[3] += stream.counters().padding;
          EXPECT_TRUE(r == 0 || count == batches) << layout;
          batches = count;
        }
        sums[0] = batches;
        EXPECT_EQ(sums, found[1]) << layout << " dp " << dp;
      }
      EXPECT_EQ(found[1][1], 21) << layout;
      EXPECT_GT(found[1][0], 1) << layout;
    }
  }
}

TEST(Layout, FewLongRowsMayFillAPackedBatchAndTooFewAreRefused) {
  const auto tokenizer = make_bytes_tokenizer();
  std::string text(162, 'a');
  text[100] = '\n';
  const auto rows = rows_in_memory(text, RowFormat::kText, "t");
  DataConfig config;
  config.layout = "pack";
  config.seq_length = 20;
  StreamOptions options;
  options.global_batch = 8;
  BatchStream stream(config, *rows, *tokenizer, options);
  EXPECT_EQ(stream.count_steps(3), 3);
  const PackSize size = stream.measure_pack();
  EXPECT_EQ(size.rows, 2);
  EXPECT_EQ(size.sequences, 9);
  EXPECT_EQ(size.tokens, 161);
  Batch batch;
  ASSERT_TRUE(stream.next(batch));
  EXPECT_EQ(batch.num_rows, 8);
  stream.restore({1, 0, 10, 0});
  expect_user_error([&] { stream.next(batch); }, "packed row 10 of 9");
  expect_user_error([&] { stream.restore({1, 0, -1, 0}); }, "packed row -1");
  options.global_batch = 10;
  BatchStream few(config, *rows, *tokenizer, options);
  expect_user_error([&] { few.next(batch); }, "fills 9 packed rows");
  expect_user_error([&] { few.count_steps_per_epoch(); }, "fewer than one global batch of 10");
}

TEST(Nulls, AreEmptyAndCounted) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows =
      rows_in_memory("{\"text\":null}\n{\"text\":\"ab\",\"b\":null}\n{\"text\":\"cd\"}\n",
                     RowFormat::kJsonLines, "t");
  DataConfig config;
  config.seq_length = 4;
  StreamOptions options;
  options.global_batch = 2;
  BatchStream stream(config, *rows, *tokenizer, options);
  Batch b;
  ASSERT_TRUE(stream.next(b));
  EXPECT_EQ(stream.counters().nulls, 1);  // the column b is not used
  EXPECT_EQ(stream.counters().dropped, 1);
}

}  // namespace
}  // namespace weft
