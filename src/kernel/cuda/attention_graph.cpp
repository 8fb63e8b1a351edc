// kernel/cuda/attention_graph.cpp: cuDNN's header-only frontend, which no other file includes: it
// takes a minute to compile.
#include "kernel/cuda/attention_graph.h"

#include <cuda_runtime.h>
#include <cudnn.h>
#include <cudnn_frontend.h>

#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/launch.h"
#include "kernel/gpu/cuda_options.h"

namespace weft::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

fe::DataType_t type_of(const AttentionShape& shape) {
  return shape.dtype == Dtype::kF16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  if (status == CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED ||
      status == CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH) {
    throw UserError(fmt::format("cuDNN is incomplete: {}: {}", what, cudnnGetErrorString(status)),
                    "install all its libraries in one version, or set WEFT_CUDNN=off");
  }
  fail_device(fmt::format("{}: {}", what, cudnnGetErrorString(status)));
}

// A handle belongs to one thread while in use. Handles are never destroyed: at program exit the
// driver may be gone before them.
class Handle {
 public:
  explicit Handle(int device) : device_(device) {
    const std::lock_guard lock(mutex());
    std::vector<cudnnHandle_t>& free = unused()[device];
    if (free.empty()) {
      check_cudnn(cudnnCreate(&handle_), "cudnnCreate");
    } else {
      handle_ = free.back();
      free.pop_back();
    }
  }
  ~Handle() {
    const std::lock_guard lock(mutex());
    unused()[device_].push_back(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::map<int, std::vector<cudnnHandle_t>>& unused() {
    static std::map<int, std::vector<cudnnHandle_t>> unused;
    return unused;
  }
  int device_;
  cudnnHandle_t handle_ = nullptr;
};

// Of queries: H heads of T positions; of keys: G heads of S positions.
struct HeadTensor {
  int64_t count, positions;
  HeadStrides strides;

  void describe(Tensor_attributes* to, AttentionTensor id, const AttentionShape& shape) const {
    to->set_uid(id)
        .set_dim({shape.B, count, positions, shape.D})
        .set_stride({strides.row, strides.head, strides.position, 1})
        .set_data_type(type_of(shape));
  }
};
HeadTensor of_queries(const AttentionShape& shape, const HeadStrides& strides) {
  return {shape.H, shape.T, strides};
}
HeadTensor of_keys(const AttentionShape& shape, const HeadStrides& strides) {
  return {shape.G, shape.S, strides};
}

Tensor input(fe::graph::Graph& graph, const char* name, AttentionTensor id,
             const AttentionShape& shape, const HeadTensor& heads) {
  Tensor_attributes attributes;
  heads.describe(&attributes.set_name(name), id, shape);
  return graph.tensor(attributes);
}

void set_output(const Tensor& tensor, AttentionTensor id, const AttentionShape& shape,
                const HeadTensor& heads) {
  heads.describe(&tensor->set_output(true), id, shape);
}

std::vector<int64_t> lse_dims(const AttentionShape& shape) {
  return {shape.B, shape.H, shape.T, 1};
}
std::vector<int64_t> lse_strides(const AttentionShape& shape) {
  return {shape.H * shape.T, shape.T, 1, 1};
}

template <typename Attributes>
void set_common(fe::graph::Graph& graph, const AttentionShape& shape, Attributes& attributes) {
  attributes.set_attn_scale(shape.scale);
  if (shape.causal) {
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }
  // Key j is seen where j + bound > t: the query's own position counts, as in ours.
  if (shape.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(shape.window));
  if (shape.segments) {
    const int64_t pitch = segment_mask_pitch(shape.T);
    attributes.set_bias(graph.tensor(Tensor_attributes()
                                         .set_name("mask of segments")
                                         .set_uid(kMask)
                                         .set_dim({shape.B, 1, shape.T, shape.T})
                                         .set_stride({shape.T * pitch, shape.T * pitch, pitch, 1})
                                         .set_data_type(type_of(shape))));
  }
  if (!shape.padding_mask) return;
  const auto length = [&](const char* name, AttentionTensor id) {
    return graph.tensor(Tensor_attributes()
                            .set_name(name)
                            .set_uid(id)
                            .set_dim({shape.B, 1, 1, 1})
                            .set_stride({1, 1, 1, 1})
                            .set_data_type(fe::DataType_t::INT32));
  };
  attributes.set_padding_mask(true)
      .set_seq_len_q(length("length_q", kLengthQ))
      .set_seq_len_kv(length("length_kv", kLengthKv));
}

void add_forward(fe::graph::Graph& graph, const AttentionShape& shape) {
  fe::graph::SDPA_attributes attributes;
  attributes.set_name("attention").set_generate_stats(true);
  set_common(graph, shape, attributes);
  auto [out, lse] = graph.sdpa(input(graph, "q", kQ, shape, of_queries(shape, shape.q)),
                               input(graph, "k", kK, shape, of_keys(shape, shape.k)),
                               input(graph, "v", kV, shape, of_keys(shape, shape.v)), attributes);
  set_output(out, kOut, shape, of_queries(shape, shape.out));
  lse->set_output(true)
      .set_uid(kLse)
      .set_dim(lse_dims(shape))
      .set_stride(lse_strides(shape))
      .set_data_type(fe::DataType_t::FLOAT);
}

void add_backward(fe::graph::Graph& graph, const AttentionShape& shape) {
  fe::graph::SDPA_backward_attributes attributes;
  attributes.set_name("attention gradient").set_deterministic_algorithm(shape.deterministic);
  set_common(graph, shape, attributes);
  const Tensor lse = graph.tensor(Tensor_attributes()
                                      .set_name("lse")
                                      .set_uid(kLse)
                                      .set_dim(lse_dims(shape))
                                      .set_stride(lse_strides(shape))
                                      .set_data_type(fe::DataType_t::FLOAT));
  auto [dq, dk, dv] = graph.sdpa_backward(
      input(graph, "q", kQ, shape, of_queries(shape, shape.q)),
      input(graph, "k", kK, shape, of_keys(shape, shape.k)),
      input(graph, "v", kV, shape, of_keys(shape, shape.v)),
      input(graph, "out", kOut, shape, of_queries(shape, shape.out)),
      input(graph, "dout", kDout, shape, of_queries(shape, shape.out)), lse, attributes);
  set_output(dq, kDq, shape, of_queries(shape, shape.q));
  set_output(dk, kDk, shape, of_keys(shape, shape.k));
  set_output(dv, kDv, shape, of_keys(shape, shape.v));
}

struct Plan {
  fe::graph::Graph graph;
  int64_t bytes = 0;
};

// A problem of the machine (memory, a missing part of cuDNN) is not a rejection: another call, or
// another rank, may not have it.
bool is_refusal(const fe::error_t& status) {
  using Code = fe::error_code_t;
  if (status.code == Code::CUDA_API_FAILED || status.code == Code::HANDLE_ERROR ||
      status.code == Code::INVALID_CUDA_DEVICE || status.code == Code::NVRTC_COMPILATION_FAILED) {
    return false;
  }
  // cuDNN's own status is only in the message text.
  for (const char* trouble : {"SUBLIBRARY", "ALLOC_FAILED", "INTERNAL_ERROR", "NOT_INITIALIZED"}) {
    if (status.err_msg.find(trouble) != std::string::npos) return false;
  }
  return true;
}

// Null, and why, where cuDNN rejects it.
std::shared_ptr<Plan> build(const AttentionShape& shape, cudnnHandle_t handle, std::string* why) {
  auto plan = std::make_shared<Plan>();
  fe::graph::Graph& graph = plan->graph;
  graph.set_io_data_type(type_of(shape))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (shape.backward) {
    add_backward(graph, shape);
  } else {
    add_forward(graph, shape);
  }
  fe::error_t status = graph.validate();
  const auto step = [&](const auto& next) {
    if (!status.is_bad()) status = next();
  };
  step([&] { return graph.build_operation_graph(handle); });
  step([&] { return graph.create_execution_plans({fe::HeurMode_t::A}); });
  step([&] { return graph.check_support(); });
  step([&] { return graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE); });
  step([&] { return graph.get_workspace_size(plan->bytes); });
  if (!status.is_bad()) return plan;
  fail_if_lost(shape.text());
  if (!is_refusal(status)) {
    throw UserError(fmt::format("cuDNN {} fails to prepare {}: {}", cudnn_version(), shape.text(),
                                status.err_msg),
                    "check that the GPU has free memory and that all of cuDNN's libraries have one "
                    "version, or set WEFT_CUDNN=off");
  }
  *why = status.err_msg.empty() ? "it does not say why" : status.err_msg;
  return nullptr;
}

// Null, and why, where cuDNN rejects it.
std::shared_ptr<const Plan> plan_of(const AttentionShape& shape, cudnnHandle_t handle,
                                    cudaStream_t stream, std::string* why) {
  static std::mutex mutex;
  // Never destroyed: at program exit cuDNN may be gone before them.
  static auto& plans = *new std::map<AttentionBackend::Key, std::shared_ptr<const Plan>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Plan>& plan = plans[shape.key()];
  if (!plan) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    ensure(status == cudaStreamCaptureStatusNone,
           fmt::format("{}: first run while a stream is being captured", shape.text()));
    plan = build(shape, handle, why);
  }
  return plan;
}

}  // namespace

AttentionBackend::Key AttentionShape::key() const {
  return {B,
          T,
          S,
          H,
          G,
          D,
          q.row,
          q.position,
          q.head,
          k.row,
          k.position,
          k.head,
          v.row,
          v.position,
          v.head,
          out.row,
          out.position,
          out.head,
          std::bit_cast<int32_t>(scale),
          causal,
          window,
          backward,
          padding_mask,
          deterministic,
          segments,
          device,
          static_cast<int64_t>(dtype)};
}

std::string AttentionShape::text() const {
  return fmt::format(
      "attention{} {} B {} T {} S {} H {} G {} D {}{}{}{}", backward ? " gradient" : "",
      dtype_name(dtype), B, T, S, H, G, D, causal ? "" : " not causal",
      window > 0 ? fmt::format(" window {}", window) : "", segments ? " packed" : "");
}

std::string attention_refusal(const Context& context, const AttentionShape& shape,
                              size_t planned_bytes) {
  const Handle handle(shape.device);
  check_cudnn(cudnnSetStream(handle.get(), stream_of(context)), "cudnnSetStream");
  std::string why;
  const auto plan = plan_of(shape, handle.get(), stream_of(context), &why);
  if (plan && plan->bytes > static_cast<int64_t>(planned_bytes)) {
    why =
        fmt::format("it needs a workspace of {} bytes, {} are planned", plan->bytes, planned_bytes);
  }
  if (why.empty()) return why;
  return fmt::format("cuDNN {} rejects {} on this GPU: {}", cudnn_version(), shape.text(), why);
}

void run_attention(const Context& context, const AttentionShape& shape, AttentionPointers pointers,
                   std::byte* workspace) {
  const Handle handle(shape.device);
  check_cudnn(cudnnSetStream(handle.get(), stream_of(context)), "cudnnSetStream");
  std::string why;
  const auto plan = plan_of(shape, handle.get(), stream_of(context), &why);
  ensure(plan != nullptr, fmt::format("{}: its graph was not built before: {}", shape.text(), why));
  const int64_t left = context.workspace + context.workspace_bytes - workspace;
  ensure(plan->bytes <= left,
         fmt::format("{}: cuDNN needs a workspace of {} bytes, {} were planned", shape.text(),
                     plan->bytes, left));
  const fe::error_t status = plan->graph.execute(handle.get(), pointers, workspace);
  if (status.is_bad()) {
    fail_device(fmt::format("{} of cuDNN: {}", shape.text(), status.err_msg));
  }
}

}  // namespace weft::cuda

std::string weft::cudnn_version() {
  const size_t v = ::cudnnGetVersion();
  if (v == 0) return "";  // not on this machine
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}
