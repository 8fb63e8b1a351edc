// kernel/cuda/attention_cudnn.cpp: attention by cuDNN's graphs, through its header-only frontend.
//
// The only file that includes the frontend: it takes a minute to compile.
//
// q, k, v are read out of the packed qkv by their strides, and dq, dk, dv written so. A graph is
// built once for each shape (that may take a second and takes memory, so not while a stream is
// recorded) and kept for the life of the program.
//
// Padding: a query below the length sees no key past it, so cuDNN is not told of lengths at all and
// runs its plain causal kernel. After the forward pass the outputs and lse of padded queries are
// set to zero; the backward pass gets a copy of lse in which theirs is 1e30, so that their P is
// exactly zero and with it all that they would give (their dout must be finite). The alternative,
// cuDNN's own padding mask (AttentionSettings), is kept to be measured against.
#include <cuda_runtime.h>
#include <cudnn.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_pieces.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda_options.h"
#include "kernel/cudnn_rule.h"

namespace weft::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

// What makes one graph differ from another. Strides are those of the whole tensors, of which a
// piece may be computed.
struct Shape {
  int64_t B, T, H, G, D;
  int64_t qkv_width, out_width;
  float scale;
  bool backward, padding_mask, deterministic;
  int device;
  Dtype dtype;  // bf16 or fp16

  fe::DataType_t type() const {
    return dtype == Dtype::kF16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
  }
  using Key = std::array<int64_t, 13>;
  Key key() const {
    return {B,
            T,
            H,
            G,
            D,
            qkv_width,
            out_width,
            std::bit_cast<int32_t>(scale),
            backward,
            padding_mask,
            deterministic,
            device,
            static_cast<int64_t>(dtype)};
  }
  std::string text() const {
    return fmt::format("attention{} {} B {} T {} H {} G {} D {}", backward ? " gradient" : "",
                       dtype_name(dtype), B, T, H, G, D);
  }
};

enum Id : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv, kLengthQ, kLengthKv };
using Pointers = std::unordered_map<int64_t, void*>;

[[noreturn]] void refuse(const Shape& shape, const std::string& why) {
  throw UserError(
      fmt::format("cuDNN {} refuses {} on this GPU: {}", cudnnGetVersion(), shape.text(), why),
      "use a newer cuDNN, or set WEFT_CUDNN=off: then weft's own, slower kernel serves");
}

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  if (status == CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED ||
      status == CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH) {
    throw UserError(fmt::format("cuDNN is not whole: {}: {}", what, cudnnGetErrorString(status)),
                    "install all its libraries of one version, or set WEFT_CUDNN=off");
  }
  fail_device(fmt::format("{}: {}", what, cudnnGetErrorString(status)));
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

// Compute capability as 10 major + minor; asked for once.
int capability() {
  constexpr int kDevices = 64;
  static std::array<int, kDevices> known{};
  static std::mutex mutex;
  const int device = current_device();
  const std::lock_guard lock(mutex);
  int& at = known.at(static_cast<size_t>(device));
  if (at == 0) {
    int major = 0, minor = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "capability");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "capability");
    at = 10 * major + minor;
  }
  return at;
}

// A handle is one thread's while it is in use. Handles are never destroyed: at the end of the
// program the driver may be gone before them.
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

// (B, heads, T, D) as rows of `width` elements.
Tensor heads(fe::graph::Graph& graph, const char* name, Id id, const Shape& shape, int64_t count,
             int64_t width) {
  return graph.tensor(Tensor_attributes()
                          .set_name(name)
                          .set_uid(id)
                          .set_dim({shape.B, count, shape.T, shape.D})
                          .set_stride({shape.T * width, shape.D, width, 1})
                          .set_data_type(shape.type()));
}

void set_output(const Tensor& tensor, Id id, const Shape& shape, int64_t count, int64_t width) {
  tensor->set_output(true)
      .set_uid(id)
      .set_dim({shape.B, count, shape.T, shape.D})
      .set_stride({shape.T * width, shape.D, width, 1})
      .set_data_type(shape.type());
}

std::vector<int64_t> lse_dims(const Shape& shape) { return {shape.B, shape.H, shape.T, 1}; }
std::vector<int64_t> lse_strides(const Shape& shape) { return {shape.H * shape.T, shape.T, 1, 1}; }

template <typename Attributes>
void set_common(fe::graph::Graph& graph, const Shape& shape, Attributes& attributes) {
  attributes.set_attn_scale(shape.scale)
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);  // causal
  if (!shape.padding_mask) return;
  const auto length = [&](const char* name, Id id) {
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

void add_forward(fe::graph::Graph& graph, const Shape& shape) {
  fe::graph::SDPA_attributes attributes;
  attributes.set_name("attention").set_generate_stats(true);
  set_common(graph, shape, attributes);
  auto [out, lse] = graph.sdpa(heads(graph, "q", kQ, shape, shape.H, shape.qkv_width),
                               heads(graph, "k", kK, shape, shape.G, shape.qkv_width),
                               heads(graph, "v", kV, shape, shape.G, shape.qkv_width), attributes);
  set_output(out, kOut, shape, shape.H, shape.out_width);
  lse->set_output(true)
      .set_uid(kLse)
      .set_dim(lse_dims(shape))
      .set_stride(lse_strides(shape))
      .set_data_type(fe::DataType_t::FLOAT);
}

void add_backward(fe::graph::Graph& graph, const Shape& shape) {
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
      heads(graph, "q", kQ, shape, shape.H, shape.qkv_width),
      heads(graph, "k", kK, shape, shape.G, shape.qkv_width),
      heads(graph, "v", kV, shape, shape.G, shape.qkv_width),
      heads(graph, "out", kOut, shape, shape.H, shape.out_width),
      heads(graph, "dout", kDout, shape, shape.H, shape.out_width), lse, attributes);
  set_output(dq, kDq, shape, shape.H, shape.qkv_width);
  set_output(dk, kDk, shape, shape.G, shape.qkv_width);
  set_output(dv, kDv, shape, shape.G, shape.qkv_width);
}

struct Plan {
  fe::graph::Graph graph;
  int64_t bytes = 0;
};

std::shared_ptr<Plan> build(const Shape& shape, cudnnHandle_t handle) {
  auto plan = std::make_shared<Plan>();
  fe::graph::Graph& graph = plan->graph;
  graph.set_io_data_type(shape.type())
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (shape.backward) {
    add_backward(graph, shape);
  } else {
    add_forward(graph, shape);
  }
  const auto step = [&](const fe::error_t& status) {
    if (!status.is_bad()) return;
    fail_if_lost(shape.text());
    refuse(shape, status.err_msg);
  };
  step(graph.validate());
  step(graph.build_operation_graph(handle));
  step(graph.create_execution_plans({fe::HeurMode_t::A}));
  step(graph.check_support());
  step(graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE));
  step(graph.get_workspace_size(plan->bytes));
  return plan;
}

std::shared_ptr<const Plan> plan_of(const Shape& shape, cudnnHandle_t handle, cudaStream_t stream) {
  static std::mutex mutex;
  // Never destroyed: at the end of the program cuDNN may be gone before them.
  static auto& plans = *new std::map<Shape::Key, std::shared_ptr<const Plan>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Plan>& plan = plans[shape.key()];
  if (!plan) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    ensure(status == cudaStreamCaptureStatusNone,
           fmt::format("{}: first run while a stream is recorded", shape.text()));
    plan = build(shape, handle);
  }
  return plan;
}

void run(const Context& context, const Shape& shape, Pointers pointers, std::byte* workspace) {
  const Handle handle(shape.device);
  check_cudnn(cudnnSetStream(handle.get(), stream_of(context)), "cudnnSetStream");
  const std::shared_ptr<const Plan> plan = plan_of(shape, handle.get(), stream_of(context));
  const int64_t left = context.workspace + context.workspace_bytes - workspace;
  ensure(plan->bytes <= left,
         fmt::format("{}: cuDNN wants a workspace of {} bytes, {} were planned", shape.text(),
                     plan->bytes, left));
  const fe::error_t status = plan->graph.execute(handle.get(), pointers, workspace);
  if (status.is_bad()) {
    fail_device(fmt::format("{} of cuDNN: {}", shape.text(), status.err_msg));
  }
}

// cuDNN's part of the workspace begins at a multiple of this.
constexpr size_t kAlign = 256;
std::byte* align(std::byte* at) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(at) + kAlign - 1) &
                                      ~uintptr_t{kAlign - 1});
}

size_t lse_bytes(int64_t B, int64_t H, int64_t T) {
  return static_cast<size_t>(B * H * T) * sizeof(float);
}

// Forward and backward alike: above 128 only Hopper has both.
template <typename Args>
bool takes(const Args& args) {
  if (!suits_cudnn(args) || !find_cudnn(nullptr)) return false;
  const int gpu = capability();
  return gpu >= 80 && (args.D <= 128 || gpu / 10 == 9);
}

template <typename Args>
Shape shape_of(const Args& args, bool backward) {
  const AttentionSettings& settings = attention_settings();
  return {.B = args.B,
          .T = args.T,
          .H = args.H,
          .G = args.G,
          .D = args.D,
          .qkv_width = (args.H + 2 * args.G) * args.D,
          .out_width = args.H * args.D,
          .scale = args.scale,
          .backward = backward,
          .padding_mask = settings.padding_mask,
          .deterministic = settings.deterministic,
          .device = current_device(),
          .dtype = args.dtype};
}

// Element `at` of memory of 16 bits that a graph takes as void*.
void* element(const void* data, int64_t at) {
  return const_cast<uint16_t*>(static_cast<const uint16_t*>(data) + at);
}

// One piece of the backward pass: `rows` rows from `row`, `groups` groups of heads from `group`.
void run_piece(const Context& context, const AttentionBackwardArgs& args, const float* lse,
               std::byte* workspace, int64_t row, int64_t rows, int64_t group, int64_t groups) {
  Shape shape = shape_of(args, true);
  shape.B = rows;
  shape.G = groups;
  shape.H = groups * (args.H / args.G);
  const int64_t head = group * (args.H / args.G);
  const int64_t q = row * args.T * shape.qkv_width + head * args.D;
  const int64_t k = row * args.T * shape.qkv_width + (args.H + group) * args.D;
  const int64_t v = k + args.G * args.D;
  const int64_t out = row * args.T * shape.out_width + head * args.D;
  Pointers pointers = {{kQ, element(args.qkv, q)},
                       {kK, element(args.qkv, k)},
                       {kV, element(args.qkv, v)},
                       {kOut, element(args.out, out)},
                       {kDout, element(args.dout, out)},
                       {kLse, const_cast<float*>(lse + (row * args.H + head) * args.T)},
                       {kDq, element(args.dqkv, q)},
                       {kDk, element(args.dqkv, k)},
                       {kDv, element(args.dqkv, v)}};
  if (shape.padding_mask) {
    pointers[kLengthQ] = pointers[kLengthKv] = const_cast<int32_t*>(args.lengths + row);
  }
  run(context, shape, std::move(pointers), workspace);
}

}  // namespace

bool cudnn_takes(const AttentionArgs& args) { return takes(args); }
bool cudnn_takes(const AttentionBackwardArgs& args) { return takes(args); }

// Forward kernels keep little: counters of a persistent grid, at most a statistic or two a query.
size_t cudnn_attention_workspace(const AttentionArgs& args) {
  if (!suits_cudnn(args)) return 0;
  constexpr size_t kSlack = size_t{4} << 20;
  const size_t own_lse = args.lse ? 0 : lse_bytes(args.B, args.H, args.T);
  return own_lse + kAlign + 2 * lse_bytes(args.B, args.H, (args.T + 127) / 128 * 128) + kSlack;
}

size_t cudnn_attention_backward_workspace(const AttentionBackwardArgs& args) {
  if (!suits_cudnn(args)) return 0;
  return lse_bytes(args.B, args.H, args.T) + kAlign +
         attention_pieces_room(args.B, args.T, args.H, args.G, args.D);
}

void cudnn_attention(const Context& context, const AttentionArgs& args) {
  const Shape shape = shape_of(args, false);
  std::byte* workspace = context.workspace;
  float* lse = args.lse;
  if (!lse) {  // asked for all the same: one graph, so the same bits
    lse = reinterpret_cast<float*>(workspace);
    workspace += lse_bytes(args.B, args.H, args.T);
  }
  Pointers pointers = {{kQ, element(args.qkv, 0)},
                       {kK, element(args.qkv, args.H * args.D)},
                       {kV, element(args.qkv, (args.H + args.G) * args.D)},
                       {kOut, args.out},
                       {kLse, lse}};
  if (shape.padding_mask) {
    pointers[kLengthQ] = pointers[kLengthKv] = const_cast<int32_t*>(args.lengths);
  }
  run(context, shape, std::move(pointers), align(workspace));
  zero_padding(context, args.B, args.T, shape.out_width, args.dtype, args.lengths, args.out, args.H,
               lse);
}

void cudnn_attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  const AttentionPieces pieces = attention_pieces(args.B, args.T, args.H, args.G, args.D);
  const float* lse = args.lse;
  std::byte* workspace = align(context.workspace + lse_bytes(args.B, args.H, args.T));
  if (!attention_settings().padding_mask) {
    auto* raised = reinterpret_cast<float*>(context.workspace);
    raise_padding_lse(context, args.B, args.H, args.T, args.lengths, args.lse, raised);
    lse = raised;
  }
  for (int64_t row = 0; row < args.B; row += pieces.rows) {
    for (int64_t group = 0; group < args.G; group += pieces.groups) {
      run_piece(context, args, lse, workspace, row, std::min(pieces.rows, args.B - row), group,
                std::min(pieces.groups, args.G - group));
    }
  }
  if (attention_settings().padding_mask) {
    zero_padding(context, args.B, args.T, (args.H + 2 * args.G) * args.D, args.dtype, args.lengths,
                 args.dqkv, 0, nullptr);
  }
}

}  // namespace weft::cuda

std::string weft::why_no_cudnn() {
  std::string why;
  cuda::find_cudnn(&why);
  return why;
}

std::string weft::cudnn_version() {
  const size_t v = ::cudnnGetVersion();
  if (v == 0) return "";  // not on this machine
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}
