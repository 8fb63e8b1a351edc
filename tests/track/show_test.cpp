// tests/track/show_test.cpp: the progress line and the plots.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "base/error.h"
#include "base/file.h"
#include "tests/data/helpers.h"
#include "track/plot.h"
#include "track/plot_scale.h"
#include "track/progress.h"

namespace weft {
namespace {

// The output of a Progress of this style for `steps` steps of half a second each.
std::string shown(ProgressStyle style, int64_t steps, int64_t total, int64_t log_every) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  {
    Progress progress(style, total, log_every, ends[1]);
    for (int64_t s = 1; s <= steps; ++s) {
      StepMetrics m;
      m.step = s;
      m.loss = 2.5;
      m.step_ms = 500;
      m.tokens_per_s = 12345.6;
      m.mem_bytes = int64_t{3} << 29;
      m.time_s = 0.5 * static_cast<double>(s);
      progress.step(m);
    }
  }
  ::close(ends[1]);
  std::string text(65536, '\0');
  size_t size = 0;
  for (ssize_t n = 0; (n = ::read(ends[0], text.data() + size, text.size() - size)) > 0;) {
    size += static_cast<size_t>(n);
  }
  ::close(ends[0]);
  return text.substr(0, size);
}

TEST(Progress, PlainLinesEachLogEverySteps) {
  EXPECT_EQ(shown(ProgressStyle::kPlain, 4, 200, 2),
            "step 2/200  loss 2.5000  12,346 tok/s  1.5 GiB  1:39 min left\n"
            "step 4/200  loss 2.5000  12,346 tok/s  1.5 GiB  1:38 min left\n");
  EXPECT_EQ(shown(ProgressStyle::kPlain, 1, 0, 1),
            "step 1  loss 2.5000  12,346 tok/s  1.5 GiB  1 s\n");
}

TEST(Progress, LogEveryZeroShowsNoSteps) {
  EXPECT_EQ(shown(ProgressStyle::kPlain, 4, 4, 0), "");
  EXPECT_EQ(shown(ProgressStyle::kTerminal, 4, 4, 0), "");
}

TEST(Progress, TerminalLineIsRewritten) {
  const std::string text = shown(ProgressStyle::kTerminal, 4, 8, 1);
  EXPECT_TRUE(text.starts_with("\r\x1b[K"));
  EXPECT_NE(text.find("██████████··········"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);  // the one at the end
}

// A terminal of this many columns (0: not reported), and what was written to it.
class Terminal {
 public:
  explicit Terminal(size_t columns) : fd_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_EQ(::grantpt(fd_), 0);
    EXPECT_EQ(::unlockpt(fd_), 0);
    end_ = ::open(::ptsname(fd_), O_RDWR | O_NOCTTY);
    const winsize size{24, static_cast<unsigned short>(columns), 0, 0};
    EXPECT_EQ(::ioctl(end_, TIOCSWINSZ, &size), 0);
  }
  ~Terminal() {
    ::close(end_);
    ::close(fd_);
  }
  // The one line that a step shows, as a person sees it.
  std::string line_of(const StepMetrics& step, int64_t total) {
    Progress progress(ProgressStyle::kTerminal, total, 1, end_);
    progress.step(step);
    std::string text(4096, '\0');
    const ssize_t n = ::read(fd_, text.data(), text.size());
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
    return std::regex_replace(text, std::regex("\r|\x1b\\[[0-9;]*[A-Za-z]"), "");
  }

 private:
  int fd_, end_ = -1;
};

size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

StepMetrics long_step() {
  StepMetrics m;
  m.step = 1234567;
  m.loss = 12.3456;
  m.step_ms = 500;
  m.tokens_per_s = 1234567.8;
  m.mem_bytes = int64_t{123} << 30;
  m.time_s = 1;
  return m;
}

// Narrower than any number of fields, wider than all of them: never a new line, never half a
// number.
// Work of 40 s between steps, reported every second.
std::string shown_parts(ProgressStyle style) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  {
    Progress progress(style, 100, 1, ends[1]);
    for (int second = 1; second <= 40; ++second) progress.part("evaluating", second / 40.0, second);
    progress.clear();
  }
  ::close(ends[1]);
  std::string text(1 << 16, '\0');
  const ssize_t got = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

TEST(Progress, WorkBetweenStepsIsShown) {
  EXPECT_EQ(shown_parts(ProgressStyle::kQuiet), "");
  EXPECT_EQ(shown_parts(ProgressStyle::kPlain),
            "evaluating: 25 %  30 s left\nevaluating: 50 %  20 s left\n"
            "evaluating: 75 %  10 s left\nevaluating: 100 %  0 s left\n");
  const std::string text = shown_parts(ProgressStyle::kTerminal);
  EXPECT_TRUE(text.starts_with("\r\x1b[Kevaluating: 2 %  39 s left\r\x1b[K")) << text;
  EXPECT_TRUE(text.ends_with("evaluating: 100 %  0 s left\r\x1b[K")) << text;
}

TEST(Progress, TheLineFitsTheTerminal) {
  const std::string all =
      "step 1234567/9999999  loss 12.3456  1,234,568 tok/s  123.0 GiB  1217:25 h left";
  for (const size_t columns : {10u, 30u, 40u, 60u, 79u, 80u, 81u, 90u, 100u, 120u, 200u}) {
    Terminal terminal(columns);
    const std::string line = terminal.line_of(long_step(), 9999999);
    EXPECT_LT(width_of(line), columns) << line;
    const std::string words = line.substr(std::min(line.find("step"), line.size()));
    EXPECT_TRUE(all.starts_with(words)) << line;
    if (columns > 30) {
      EXPECT_TRUE(words == all || all.substr(words.size()).starts_with("  ")) << line;
    }
    // Not cut at 80 where the terminal is wider.
    EXPECT_EQ(words == all, columns > all.size()) << columns << line;
    // Remaining space goes to the bar, from five cells up.
    const bool has_bar = words.size() < line.size();
    EXPECT_EQ(has_bar, columns >= words.size() + 7) << columns << line;
  }
}

TEST(Progress, AnUnknownWidthIsReadFromTheEnvironment) {
  ::setenv("COLUMNS", "50", 1);
  const std::string narrow = Terminal(0).line_of(long_step(), 9999999);
  ::unsetenv("COLUMNS");
  EXPECT_LT(width_of(narrow), 50u) << narrow;
  EXPECT_GT(width_of(Terminal(0).line_of(long_step(), 9999999)), 50u);
}

TEST(Progress, QuietIsQuiet) { EXPECT_EQ(shown(ProgressStyle::kQuiet, 4, 8, 1), ""); }

TEST(Progress, NumbersForPeople) {
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(7800), "2:10 h");
  EXPECT_EQ(format_bytes(5 << 20), "5 MiB");
  EXPECT_EQ(format_bytes(435712), "426 KiB");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(0), "0 B");
}

LossCurve falling(int n) {
  LossCurve curve;
  curve.title = "quickstart";
  for (int i = 1; i <= n; ++i) {
    const double wave = 0.12 * std::sin(i * 12.9898) + 0.08 * std::sin(i * 78.233);
    curve.train.push_back({double(i), (0.08 + 5.4 * std::exp(-i / 60.0)) * (1 + wave)});
    if (i % 100 == 0) curve.eval.push_back({double(i), 0.1 + 5.4 * std::exp(-i / 60.0)});
  }
  return curve;
}

TEST(Plot, TicksAreRound) {
  EXPECT_EQ(Scale(0, 1000, false).ticks(5), (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  const std::vector<double> log_ticks = Scale(0.09, 6, true).ticks(5);
  ASSERT_EQ(log_ticks.size(), 6u);
  EXPECT_NEAR(log_ticks[0], 0.1, 1e-12);
  EXPECT_NEAR(log_ticks[5], 5, 1e-12);
}

// There is no step 0.5.
TEST(Plot, StepsHaveTicksAtWholeNumbers) {
  for (const int last : {1, 2, 3, 4, 6, 7, 50, 1234}) {
    const std::vector<double> ticks = step_scale(falling(last)).ticks(8);
    EXPECT_GE(ticks.size(), 2u) << last;
    for (const double tick : ticks) EXPECT_EQ(tick, std::round(tick)) << last;
  }
}

TEST(Plot, TerminalHasAxesCurveAndEvaluations) {
  const std::string text = draw_terminal(falling(600));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 16 + 2);
  EXPECT_NE(text.find("quickstart"), std::string::npos);
  EXPECT_NE(text.find("● eval"), std::string::npos);
  EXPECT_NE(text.find("\xE2\xA0"), std::string::npos);  // some braille
  EXPECT_EQ(draw_terminal(LossCurve()), "(no losses to draw)\n");
  LossCurve flat;
  flat.train = {{1, 0.0}};
  EXPECT_NE(draw_terminal(flat).find("└"), std::string::npos);
}

TEST(Plot, SmoothingKeepsAStraightLine) {
  std::vector<CurvePoint> line;
  for (int i = 0; i < 300; ++i) line.push_back({double(i), 3.0 * i});
  for (const CurvePoint& p : smooth(line, false)) EXPECT_NEAR(p.y, 3 * p.x, 1e-9);
  for (CurvePoint& p : line) p.y = std::exp(-p.x / 50);
  for (const CurvePoint& p : smooth(line, true)) EXPECT_NEAR(p.y, std::exp(-p.x / 50), 1e-12);
}

// A million steps are drawn as about 2,000 points, so neither smoothing time nor picture size grows
// with the steps.
TEST(Plot, ALongCurveIsThinnedAndKeepsItsExtremes) {
  for (const int n : {100'000, 1'000'000}) {
    LossCurve curve = falling(n);
    curve.train[static_cast<size_t>(n / 3)].y = 50;
    curve.train[static_cast<size_t>(n / 2)].y = -1;
    const std::vector<CurvePoint> few = keep_extremes(curve.train);
    EXPECT_LE(few.size(), 2000u);
    EXPECT_EQ(few.front().x, 1);
    EXPECT_EQ(few.back().x, n);
    EXPECT_TRUE(std::is_sorted(few.begin(), few.end(),
                               [](const auto& a, const auto& b) { return a.x < b.x; }));
    const auto has = [&](double y) {
      return std::any_of(few.begin(), few.end(), [&](const CurvePoint& p) { return p.y == y; });
    };
    EXPECT_TRUE(has(50));
    EXPECT_TRUE(has(-1));
    EXPECT_FALSE(has(51));
    EXPECT_LE(smooth(curve.train, false).size(), 2000u);
  }
  const LossCurve short_curve = falling(2000);
  EXPECT_EQ(keep_extremes(short_curve.train).size(), 2000u);
}

TEST(Plot, SmoothingALongCurveKeepsAStraightLine) {
  std::vector<CurvePoint> line;
  for (int i = 0; i < 30'011; ++i) line.push_back({double(i), 3.0 * i});
  for (const CurvePoint& p : smooth(line, false)) EXPECT_NEAR(p.y, 3 * p.x, 1e-6);
  for (CurvePoint& p : line) p.y = std::exp(-p.x / 5000);
  for (const CurvePoint& p : smooth(line, true)) EXPECT_NEAR(p.y / std::exp(-p.x / 5000), 1, 1e-9);
}

TEST(Plot, PicturesArePngAndSvg) {
  const TempFolder folder;
  const auto png = folder.path() / "loss.png", svg = folder.path() / "loss.svg";
  if (!has_pictures()) {
    EXPECT_THROW(draw_picture(falling(600), png), UserError);
    return;
  }
  draw_picture(falling(600), png);
  draw_picture(falling(600), svg);
  EXPECT_TRUE(read_file(png).starts_with("\x89PNG"));
  EXPECT_NE(read_file(svg).find("<svg"), std::string::npos);
  EXPECT_THROW(draw_picture(falling(9), folder.path() / "loss.gif"), UserError);
  EXPECT_THROW(draw_picture(falling(9), folder.path() / "none" / "loss.png"), RunError);
}

TEST(Plot, CurveIsReadFromMetrics) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsWriter out(path);
    StepMetrics m;
    m.step = 1;
    m.loss = 2.0;
    out.write(m);
    m.step = 2;
    m.loss.reset();
    out.write(m);
    out.write(EpochMetrics{1, 2.0, 1.0});
    out.write(EvalMetrics{2, 1.5, 1.0, {}});
  }
  const LossCurve curve = read_loss_curve(path, "t");
  ASSERT_EQ(curve.train.size(), 1u);
  ASSERT_EQ(curve.eval.size(), 1u);
  EXPECT_EQ(curve.eval[0].y, 1.5);
}

// The JSON parser reads lines in any other form, and reports invalid JSON.
TEST(Plot, LinesOfAnyFormAreRead) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_loss_curve(path, "t");
  };
  const LossCurve curve = read(
      "{\"step\": 1, \"loss\": 2.5e0, \"lr\": -1e-05}\n"
      "{\"step\":2,\"loss\":null}\n"
      "{\"note\": {\"loss\": 7}, \"step\": 3, \"loss\": 4}\n"
      "{\"l\\u006fss\": 6, \"step\": 4}\n"
      "{\"step\": 5, \"eval_loss\": 1.5, \"text\": \"\\\"loss\\\": 9\"}\n"
      "{\"mean_loss\": 3}\n"
      "{\"step\": 6, \"loss\": 1");
  ASSERT_EQ(curve.train.size(), 3u);
  EXPECT_EQ(curve.train[0].y, 2.5);
  EXPECT_EQ(curve.train[1].y, 4);
  EXPECT_EQ(curve.train[2].y, 6);
  ASSERT_EQ(curve.eval.size(), 1u);
  EXPECT_EQ(curve.eval[0].y, 1.5);
  for (const char* bad :
       {"{\"step\": 1, \"loss\": 1-2}\n", "{\"step\": 1\n", "{\"loss\": 1}}\n", "x\n"})
    EXPECT_THROW(read(bad), UserError) << bad;
}

}  // namespace
}  // namespace weft
