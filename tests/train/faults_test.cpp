// tests/train/faults_test.cpp: a deliberate fault whose step was not run proves nothing.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "planning/fault.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;

Fault fault_of(const char* words) {
  ::setenv(kFaultVariable, words, 1);
  const std::optional<Fault> fault = Fault::from_environment();
  ::unsetenv(kFaultVariable);
  return fault.value();
}

// A run by epochs knows its last step only when it gets there.
TEST(Faults, TheStepMustHaveBeenRun) {
  const Fault third = fault_of("double,step=3");
  third.check_fired(1, 5);
  third.check_fired(3, 5);
  third.check_fired(1, 3);
  for (const auto& [first, last] : {std::pair{4, 9}, std::pair{1, 2}, std::pair{3, 2}}) {
    const std::string message = error_of<RunError>([&] { third.check_fired(first, last); });
    EXPECT_NE(message.find(fmt::format("steps {} to {}", first, last)), std::string::npos)
        << message;
    EXPECT_NE(message.find("WEFT_FAULT=double,step=3"), std::string::npos) << message;
  }
  fault_of("norm,step=3").check_fired(1, 2);  // in every step
}

}  // namespace
}  // namespace weft
