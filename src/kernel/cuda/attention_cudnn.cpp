// kernel/cuda/attention_cudnn.cpp: attention by cuDNN, and the work around it.
//
// q, k, v are read by their strides, whatever holds them, and dq, dk, dv written so. The graphs of
// both passes are built at a shape's first call: where cuDNN rejects one of them, the built-in
// kernel handles both.
//
// Padding of causal self-attention: a query below the length sees no key past it, so cuDNN does not
// get the lengths at all and runs its plain causal kernel. After the forward pass the outputs and
// lse of padded queries are set to zero; the backward pass gets a copy of lse in which theirs is
// 1e30, so that their P is exactly zero and with it all their contributions (their dout must be
// finite). Other forms have cuDNN's padding mask in addition (AttentionSettings: all forms, for
// comparison), and what it may leave unwritten of dq, dk and dv is set to zero.
//
// Segments of packed rows are kept apart by a mask that is added to the scores, made for one piece
// of the batch after another (attention_pieces.h).
#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_graph.h"
#include "kernel/cuda/attention_pieces.h"
#include "kernel/cuda/launch.h"
#include "kernel/gpu/attention_backend.h"
#include "kernel/gpu/cuda_options.h"
#include "kernel/gpu/cudnn_rule.h"
#include "kernel/packed_qkv.h"

namespace weft::cuda {
namespace {

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

// Compute capability as 10 major + minor; queried once.
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

// cuDNN's part of the workspace begins at a multiple of this.
constexpr size_t kAlign = 256;
std::byte* align(std::byte* at) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(at) + kAlign - 1) &
                                      ~uintptr_t{kAlign - 1});
}

size_t lse_bytes(int64_t B, int64_t H, int64_t T) {
  return static_cast<size_t>(B * H * T) * sizeof(float);
}

// Bytes of the mask of this many packed rows.
int64_t mask_bytes(int64_t rows, int64_t T) {
  return round_up(rows * T * segment_mask_pitch(T) * 2, static_cast<int64_t>(kAlign));
}

template <typename Data>
HeadStrides strides_of(const StridedHeads<Data>& heads) {
  return {heads.row, heads.position, heads.head};
}

// All rows need the padding mask, or none does.
bool has_padding_mask(const AttentionOperands& args) {
  return attention_settings().padding_mask || needs_padding_mask(args);
}

AttentionShape shape_of(const AttentionOperands& args, bool backward) {
  const AttentionSettings& settings = attention_settings();
  return {.B = args.B,
          .T = args.T,
          .S = args.S,
          .H = args.H,
          .G = args.G,
          .D = args.D,
          .q = strides_of(args.q),
          .k = strides_of(args.k),
          .v = strides_of(args.v),
          .out = strides_of(contiguous_heads<void>(nullptr, args.T, args.H, args.D)),
          .scale = args.scale,
          .causal = args.causal,
          .window = std::min(effective_window(args), args.T),
          .backward = backward,
          .padding_mask = has_padding_mask(args),
          .deterministic = settings.deterministic,
          .segments = args.positions != nullptr,
          .device = current_device(),
          .dtype = args.dtype};
}

// Head h of row b of a tensor of 16 bits that a graph takes as void*.
template <typename Data>
void* element(const StridedHeads<Data>& heads, int64_t b, int64_t h) {
  return const_cast<uint16_t*>(static_cast<const uint16_t*>(heads.data) + heads.at(b, 0, h));
}

template <typename Data>
bool is_contiguous(const AttentionOperands& args, const StridedHeads<Data>& heads) {
  return heads.head == args.D && heads.position == args.H * args.D &&
         heads.row == args.T * heads.position;
}
bool has_same_strides(const HeadsIn& a, const HeadsOut& b) {
  return a.row == b.row && a.position == b.position && a.head == b.head;
}

// For this many rows; all of them, where they are not packed.
AttentionShape forward_shape(const AttentionOperands& args, int64_t rows) {
  AttentionShape shape = shape_of(args, false);
  if (args.positions) shape.B = rows;
  return shape;
}

AttentionShape backward_shape(const AttentionOperands& args, int64_t rows, int64_t groups) {
  AttentionShape shape = shape_of(args, true);
  shape.B = rows;
  shape.G = groups;
  shape.H = groups * (args.H / args.G);
  return shape;
}

AttentionPieces pieces_of(const AttentionOperands& args) {
  return attention_pieces(args.B, args.T, args.S, args.H, args.G, args.D);
}

// What a plan reserves for cuDNN's forward kernels, which need little: counters of a persistent
// grid, at most a statistic or two per query.
size_t forward_bytes(const AttentionOperands& args) {
  constexpr size_t kSlack = size_t{4} << 20;
  return 2 * lse_bytes(args.B, args.H, (args.T + 127) / 128 * 128) + kSlack;
}
size_t backward_bytes(const AttentionOperands& args) {
  return attention_pieces_most_bytes(args.B, args.T, args.S, args.H, args.G, args.D,
                                     !args.has_source);
}
// For the mask of a piece, of this length or any shorter one.
size_t most_mask_bytes(const AttentionOperands& args) {
  int64_t most = 0;
  for (int64_t t = 128; args.positions && t < args.T + 128; t += 128) {
    const int64_t T = std::min(t, args.T);
    most =
        std::max(most, mask_bytes(attention_pieces(args.B, T, T, args.H, args.G, args.D).rows, T));
  }
  return static_cast<size_t>(most);
}

// Builds all graphs of the arguments' shape. Empty, or what was rejected and why.
std::string build_both(const Context& context, const AttentionOperands& args) {
  const AttentionPieces pieces = pieces_of(args);
  std::string refusal;
  for (const int64_t rows : {pieces.rows, args.B % pieces.rows}) {
    if (rows == 0 || !refusal.empty()) continue;
    refusal = attention_refusal(context, forward_shape(args, rows), forward_bytes(args));
    for (const int64_t groups : {pieces.groups, args.G % pieces.groups}) {
      if (groups == 0 || !refusal.empty()) continue;
      refusal =
          attention_refusal(context, backward_shape(args, rows, groups), backward_bytes(args));
    }
  }
  return refusal;
}

// Both forward and backward: above 128 only Hopper has both.
bool supports(const Context& context, const AttentionOperands& args) {
  const bool is_exact = gemm_choice() == GemmChoice::kExact;
  if (!suits_cudnn(args) || (is_exact && !is_cudnn_form_of_exact_mode(args))) return false;
  if (!find_cudnn(nullptr)) return false;
  const int gpu = capability();
  if (gpu < 80 || (args.D > 128 && gpu / 10 != 9)) return false;
  static AttentionBackend& backend = *new AttentionBackend;
  return backend.cudnn_supports(shape_of(args, false).key(), is_exact,
                                [&] { return build_both(context, args); });
}

// Builds the mask of some rows at `workspace`, where rows are packed; the rest of the workspace
// follows it.
std::byte* make_mask(const Context& context, const AttentionOperands& args, int64_t row,
                     int64_t rows, std::byte* workspace) {
  if (!args.positions) return workspace;
  segment_mask(context, rows, args.T, args.dtype, args.positions + row * args.T, workspace);
  return workspace + mask_bytes(rows, args.T);
}

void add_masks(const AttentionOperands& args, const AttentionShape& shape, int64_t row,
               std::byte* mask, AttentionPointers* pointers) {
  if (shape.padding_mask) {
    (*pointers)[kLengthQ] = const_cast<int32_t*>(args.lengths + row);
    (*pointers)[kLengthKv] = const_cast<int32_t*>(args.source_lengths + row);
  }
  if (shape.segments) (*pointers)[kMask] = mask;
}

// `rows` rows of the forward pass from `row`.
void run_forward(const Context& context, const AttentionArgs& args, float* lse,
                 std::byte* workspace, int64_t row, int64_t rows) {
  const AttentionShape shape = forward_shape(args, rows);
  AttentionPointers pointers = {{kQ, element(args.q, row, 0)},
                                {kK, element(args.k, row, 0)},
                                {kV, element(args.v, row, 0)},
                                {kOut, element(args.out, row, 0)},
                                {kLse, lse + row * args.H * args.T}};
  add_masks(args, shape, row, workspace, &pointers);
  run_attention(context, shape, std::move(pointers),
                make_mask(context, args, row, rows, workspace));
}

// One piece of the backward pass: `rows` rows from `row`, `groups` groups of heads from `group`.
void run_backward(const Context& context, const AttentionBackwardArgs& args, const float* lse,
                  std::byte* mask, std::byte* workspace, int64_t row, int64_t rows, int64_t group,
                  int64_t groups) {
  const AttentionShape shape = backward_shape(args, rows, groups);
  const int64_t head = group * (args.H / args.G);
  AttentionPointers pointers = {{kQ, element(args.q, row, head)},
                                {kK, element(args.k, row, group)},
                                {kV, element(args.v, row, group)},
                                {kOut, element(args.out, row, head)},
                                {kDout, element(args.dout, row, head)},
                                {kLse, const_cast<float*>(lse + (row * args.H + head) * args.T)},
                                {kDq, element(args.dq, row, head)},
                                {kDk, element(args.dk, row, group)},
                                {kDv, element(args.dv, row, group)}};
  add_masks(args, shape, row, mask, &pointers);
  run_attention(context, shape, std::move(pointers), workspace);
}

}  // namespace

bool cudnn_supports(const Context& context, const AttentionArgs& args) {
  return supports(context, args);
}
bool cudnn_supports(const Context& context, const AttentionBackwardArgs& args) {
  return supports(context, args);
}

size_t cudnn_attention_workspace(const AttentionArgs& args) {
  if (!suits_cudnn(args)) return 0;
  const size_t own_lse = args.lse ? 0 : lse_bytes(args.B, args.H, args.T);
  return own_lse + kAlign + most_mask_bytes(args) + forward_bytes(args);
}

size_t cudnn_attention_backward_workspace(const AttentionBackwardArgs& args) {
  if (!suits_cudnn(args)) return 0;
  return lse_bytes(args.B, args.H, args.T) + kAlign + most_mask_bytes(args) + backward_bytes(args);
}

void cudnn_attention(const Context& context, const AttentionArgs& args) {
  ensure(is_contiguous(args, args.out), "cuDNN's attention needs a contiguous output");
  std::byte* workspace = context.workspace;
  float* lse = args.lse;
  if (!lse) {  // computed anyway: one graph, so the same bits
    lse = reinterpret_cast<float*>(workspace);
    workspace += lse_bytes(args.B, args.H, args.T);
  }
  const int64_t rows = args.positions ? pieces_of(args).rows : args.B;
  for (int64_t row = 0; row < args.B; row += rows) {
    run_forward(context, args, lse, align(workspace), row, std::min(rows, args.B - row));
  }
  zero_padding(context, padded_queries(args), args.out, lse);
}

void cudnn_attention_backward(const Context& context, const AttentionBackwardArgs& args) {
  ensure(is_contiguous(args, args.out) && is_contiguous(args, args.dout),
         "the gradient of cuDNN's attention needs a contiguous output");
  ensure(has_same_strides(args.q, args.dq) && has_same_strides(args.k, args.dk) &&
             has_same_strides(args.v, args.dv),
         "cuDNN's attention needs gradients with the layout of q, k and v");
  const AttentionPieces pieces = pieces_of(args);
  std::byte* mask = align(context.workspace + lse_bytes(args.B, args.H, args.T));
  auto* lse = reinterpret_cast<float*>(context.workspace);
  raise_padding_lse(context, padded_queries(args), args.lse, lse);
  for (int64_t row = 0; row < args.B; row += pieces.rows) {
    const int64_t rows = std::min(pieces.rows, args.B - row);
    std::byte* workspace = make_mask(context, args, row, rows, mask);
    for (int64_t group = 0; group < args.G; group += pieces.groups) {
      run_backward(context, args, lse, mask, workspace, row, rows, group,
                   std::min(pieces.groups, args.G - group));
    }
  }
  if (has_padding_mask(args)) {
    zero_padding(context, padded_queries(args), args.dq, nullptr);
    zero_padding(context, padded_keys(args), args.dk, nullptr);
    zero_padding(context, padded_keys(args), args.dv, nullptr);
  }
}

}  // namespace weft::cuda

std::string weft::why_no_cudnn() {
  std::string why;
  cuda::find_cudnn(&why);
  return why;
}
