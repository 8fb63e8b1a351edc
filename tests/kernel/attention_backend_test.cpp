// tests/kernel/attention_backend_test.cpp: which kernel handles attention of a shape, with a fake
// cuDNN.
#include "kernel/gpu/attention_backend.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace weft {
namespace {

constexpr AttentionBackend::Key kShape = {8, 1024, 14, 2, 64}, kOther = {8, 1024, 14, 2, 72};
constexpr const char* kRefusal = "cuDNN 9.1.0 rejects attention bf16 B 8: no engine";

struct MadeCudnn {
  std::string refusal;
  int num_asked = 0;
  AttentionBackend::Build build() {
    return [this] {
      ++num_asked;
      return refusal;
    };
  }
};

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(AttentionBackend, CudnnIsQueriedOncePerShape) {
  AttentionBackend backend;
  MadeCudnn cudnn;
  for (const bool is_exact : {false, true, false}) {
    EXPECT_TRUE(backend.cudnn_supports(kShape, is_exact, cudnn.build()));
  }
  EXPECT_EQ(cudnn.num_asked, 1);
  EXPECT_TRUE(backend.cudnn_supports(kOther, false, cudnn.build()));
  EXPECT_EQ(cudnn.num_asked, 2);
}

TEST(AttentionBackend, RejectedShapesUseTheBuiltInKernelWithOneWarning) {
  AttentionBackend backend;
  MadeCudnn refusing{kRefusal}, taking;
  testing::internal::CaptureStderr();
  for (int call = 0; call < 3; ++call) {
    EXPECT_FALSE(backend.cudnn_supports(kShape, false, refusing.build()));
    EXPECT_TRUE(backend.cudnn_supports(kOther, false, taking.build()));
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(refusing.num_asked, 1);
  EXPECT_EQ(count(text, kRefusal), 1) << text;
  EXPECT_EQ(count(text, "warning: "), 1) << text;
  EXPECT_EQ(count(text, "slower built-in kernel handles"), 1) << text;
}

TEST(AttentionBackend, InExactModeARejectionIsAnError) {
  AttentionBackend backend;
  MadeCudnn refusing{kRefusal};
  testing::internal::CaptureStderr();
  for (int call = 0; call < 2; ++call) {
    try {
      backend.cudnn_supports(kShape, true, refusing.build());
      FAIL() << "served";
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()), kRefusal);
      EXPECT_EQ(count(e.hint(), "WEFT_CUDNN=off"), 1);
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  // The same program in fast mode.
  testing::internal::CaptureStderr();
  EXPECT_FALSE(backend.cudnn_supports(kShape, false, refusing.build()));
  EXPECT_EQ(count(testing::internal::GetCapturedStderr(), kRefusal), 1);
  EXPECT_EQ(refusing.num_asked, 1);
}

TEST(AttentionBackend, ALostDeviceIsNotARejection) {
  AttentionBackend backend;
  const auto lose = []() -> std::string { throw PeerError("the GPU is lost"); };
  EXPECT_THROW(backend.cudnn_supports(kShape, false, lose), PeerError);
  MadeCudnn cudnn;
  EXPECT_TRUE(backend.cudnn_supports(kShape, false, cudnn.build()));
  EXPECT_EQ(cudnn.num_asked, 1);
}

}  // namespace
}  // namespace weft
