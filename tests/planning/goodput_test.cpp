// tests/planning/goodput_test.cpp: the closed form against failures drawn one by one.
#include "planning/goodput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace weft {
namespace {

// Seconds of an interval: work until a failure or the end; after a failure a recovery, which a
// failure begins anew.
double drawn_interval_s(const Recovery& r, double rate, std::mt19937_64* dice) {
  std::exponential_distribution<double> until_failure(rate);
  const auto attempts = [&](double needed, const auto& after_failure) {
    double spent = 0;
    for (;;) {
      const double failure = until_failure(*dice);
      if (failure >= needed) return spent + needed;
      spent += failure + after_failure();
    }
  };
  const auto recover = [&] { return attempts(r.recovery_s, [] { return 0.0; }); };
  return attempts(r.interval_s + r.secure_s, recover);
}

TEST(Goodput, IsWhatDrawnFailuresGive) {
  std::mt19937_64 dice(1);
  for (const Recovery& r : {Recovery{100, 2, 5}, Recovery{1000, 30, 600}, Recovery{50, 0, 2000}}) {
    constexpr double kRate = 1 / 1500.0;
    constexpr int kIntervals = 200'000;
    double sum = 0;
    for (int i = 0; i < kIntervals; ++i) sum += drawn_interval_s(r, kRate, &dice);
    const double mean = sum / kIntervals;
    EXPECT_NEAR(mean / expected_interval_s(r, kRate), 1, 0.01) << r.interval_s;
  }
}

TEST(Goodput, WithoutFailuresOnlySavingCosts) {
  EXPECT_DOUBLE_EQ(goodput({98, 2, 600}, 0), 0.98);
  EXPECT_DOUBLE_EQ(goodput({0, 2, 600}, 0.1), 0);
  // An interval that never ends without a failure.
  EXPECT_EQ(goodput({1e9, 0, 0}, 1), 0);
}

// For short intervals: half of one is lost per failure, and the recovery.
TEST(Goodput, IsAboutOneMinusTheLoss) {
  const double rate = 1e-6;
  EXPECT_NEAR(goodput({1000, 0, 60}, rate), 1 - rate * (500 + 60), 1e-6);
}

// Young's interval, the root of 2 x cost x mean time between failures, is close to the best.
TEST(Goodput, FindsTheBestInterval) {
  const Recovery r{0, 10, 300};
  const double rate = 1e-5, step = 0.5, best = best_interval_s(r, rate, step, 0);
  EXPECT_NEAR(best, std::sqrt(2 * 10 / rate), 10);
  const auto at = [&](double s) { return goodput({s, 10, 300}, rate); };
  EXPECT_GE(at(best), at(best - step));
  EXPECT_GE(at(best), at(best + step));
  EXPECT_DOUBLE_EQ(best_interval_s(r, rate, step, 5000),
                   5000);  // no shorter than it takes to write
  EXPECT_DOUBLE_EQ(best_interval_s({0, 0, 300}, rate, step, 0), step);
  EXPECT_GT(best_interval_s(r, 0, step, 0), 300 * 86400);  // never: a year at most
}

}  // namespace
}  // namespace weft
