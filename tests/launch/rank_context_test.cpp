// tests/launch/rank_context_test.cpp: a rank's variables are parsed strictly.
#include "launch/rank_context.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"

namespace weft {
namespace {

class ScopedVariables {
 public:
  explicit ScopedVariables(const std::map<std::string, std::string>& values) : values_(values) {
    for (const auto& [name, value] : values_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~ScopedVariables() {
    for (const auto& [name, value] : values_) ::unsetenv(name.c_str());
  }
  ScopedVariables(const ScopedVariables&) = delete;
  ScopedVariables& operator=(const ScopedVariables&) = delete;

 private:
  std::map<std::string, std::string> values_;
};

std::map<std::string, std::string> variables(const ShmWorld& world) {
  return {{kRankVariable, "1"},
          {kNumRanksVariable, "3"},
          {kThreadsVariable, "2"},
          {kWorldFdVariable, std::to_string(world.fd())}};
}

std::shared_ptr<ShmWorld> world_of_three() {
  WorldOptions options;
  options.num_ranks = 3;
  return ShmWorld::create(options);
}

TEST(RankContext, IsAbsentWithoutASupervisor) {
  EXPECT_FALSE(RankContext::from_environment().has_value());
  EXPECT_FALSE(note_rank_failure("nobody listens"));
}

TEST(RankContext, CanBeReadRepeatedly) {
  const auto world = world_of_three();
  const ScopedVariables set(variables(*world));
  for (int i = 0; i < 2; ++i) {
    const auto context = RankContext::from_environment();
    ASSERT_TRUE(context.has_value());
    EXPECT_EQ(context->rank, 1);
    EXPECT_EQ(context->size, 3);
    EXPECT_EQ(context->threads, 2);
    EXPECT_EQ(context->world->num_ranks(), 3);
  }
  EXPECT_TRUE(note_rank_failure("a last word"));
  EXPECT_EQ(world->failure(1), "a last word");
  EXPECT_EQ(world->failure(0), std::nullopt);
}

TEST(RankContext, RejectsInvalidVariables) {
  const auto world = world_of_three();
  const std::map<std::string, std::string> wrong = {{kRankVariable, "3"},
                                                    {kNumRanksVariable, "4"},
                                                    {kThreadsVariable, "0"},
                                                    {kWorldFdVariable, "0"}};
  for (const auto& [name, value] : wrong) {
    auto values = variables(*world);
    values[name] = value;
    const ScopedVariables set(values);
    EXPECT_THROW(RankContext::from_environment(), UserError) << name;
  }
  for (const char* text : {"", "x", "1x", "-1", "99999999999"}) {
    auto values = variables(*world);
    values[kRankVariable] = text;
    const ScopedVariables set(values);
    EXPECT_THROW(RankContext::from_environment(), UserError) << text;
  }
  auto values = variables(*world);
  values.erase(kWorldFdVariable);
  const ScopedVariables set(values);
  EXPECT_THROW(RankContext::from_environment(), UserError);
}

}  // namespace
}  // namespace weft
