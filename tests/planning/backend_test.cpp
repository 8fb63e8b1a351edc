// tests/planning/backend_test.cpp: which GPU supports which type, and what the CPU does not.
#include "planning/backend.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "base/error.h"

namespace weft {
namespace {

std::string refusal(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UserError& e) {
    return std::string(e.what()) + " " + e.hint();
  }
  return "";
}

TEST(Backend, Bf16NeedsCapability8) {
  const CudaInfo::Gpu turing{"Tesla T4", int64_t{16} << 30, 7, 5}, ampere{"A100", 0, 8, 0};
  const std::string message = refusal([&] { check_precision("bf16", turing); });
  for (const char* part : {"Tesla T4", "7.5", "bf16 needs 8.0", "fp16 or fp32"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  for (const char* precision : {"fp16", "fp32"})
    EXPECT_NO_THROW(check_precision(precision, turing));
  for (const char* precision : {"fp16", "bf16", "fp32"})
    EXPECT_NO_THROW(check_precision(precision, ampere));
}

TEST(Backend, Tf32WithoutEffectIsReported) {
  const CudaInfo::Gpu turing{"Tesla T4", int64_t{16} << 30, 7, 5}, ampere{"A100", 0, 8, 0};
  RunConfig c;
  for (const CudaInfo::Gpu* gpu : {&turing, &ampere, static_cast<const CudaInfo::Gpu*>(nullptr)})
    EXPECT_EQ(why_no_tf32(c, gpu), "");  // not requested
  c.train.tf32 = true;
  EXPECT_EQ(why_no_tf32(c, &ampere), "");
  EXPECT_EQ(why_no_tf32(c, nullptr), "train.tf32 has no effect on the CPU");
  EXPECT_EQ(why_no_tf32_here(c, false), "train.tf32 has no effect on the CPU");
  const std::string old = why_no_tf32(c, &turing);
  for (const char* part : {"no effect", "Tesla T4", "7.5", "8.0", "fp32"})
    EXPECT_NE(old.find(part), std::string::npos) << part << " in: " << old;
  for (const char* precision : {"bf16", "fp16"}) {
    c.train.precision = precision;
    for (const bool is_on_gpu : {false, true})
      EXPECT_EQ(why_no_tf32_here(c, is_on_gpu),
                std::string("train.tf32 has no effect with train.precision: ") + precision);
  }
}

TEST(Backend, Fp16NeedsAGpu) {
  RunConfig c;
  c.launch.device = "cpu";
  c.train.precision = "fp16";
  for (const auto& fn : {std::function<void()>([&] { check_backend(c); }),
                         std::function<void()>([&] { choose_kernels(c); }),
                         std::function<void()>([&] { open_backend(c, 0); })}) {
    const std::string message = refusal(fn);
    EXPECT_NE(message.find("fp16, which needs a GPU"), std::string::npos) << message;
  }
  c.train.precision = "bf16";
  EXPECT_NO_THROW(check_backend(c));
}

// Also where no GPU is used, and whichever function is called first.
TEST(Backend, UnknownEnvironmentValuesAreRejected) {
  RunConfig c;
  c.launch.device = "cpu";
  const std::pair<const char*, const char*> variables[] = {
      {"WEFT_COMM", "wanted shm | gloo | cuda_ipc"}, {"WEFT_CUDNN", "wanted on | off"}};
  for (const auto& [name, wanted] : variables) {
    ::setenv(name, "nonsense", 1);
    for (const auto& fn : {std::function<void()>([&] { check_backend(c); }),
                           std::function<void()>([&] { choose_kernels(c); }),
                           std::function<void()>([&] { open_backend("cpu", Dtype::kF32); })}) {
      const std::string message = refusal(fn);
      EXPECT_NE(message.find(std::string(name) + "=nonsense"), std::string::npos) << message;
      EXPECT_NE(message.find(wanted), std::string::npos) << message;
    }
    ::setenv(name, "", 1);
    EXPECT_NO_THROW(check_backend(c));
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace weft
