// graph/builder.cpp: shape rules. A message names the operation, what was got, what was wanted.
#include "graph/builder.h"

#include <cmath>

#include "base/error.h"

namespace weft {
namespace {

constexpr int64_t kMostDropoutSites = 1 << 16;  // kernel/dropout.h has 16 bits for each

void check(bool ok, const char* op, const std::string& what) {
  ensure(ok, fmt::format("[{}] {}", op, what));
}

}  // namespace

Ref Builder::input(std::string name, Shape shape, Dtype dtype) {
  return graph_.add({std::move(name), std::move(shape), dtype, ValueKind::kInput});
}

Ref Builder::constant(std::string name, Shape shape, Dtype dtype) {
  return graph_.add({std::move(name), std::move(shape), dtype, ValueKind::kConstant});
}

Ref Builder::parameter(std::string name, Shape shape) {
  return graph_.add({std::move(name), std::move(shape), compute_, ValueKind::kParameter});
}

Ref Builder::cache(std::string name, Shape shape) {
  return graph_.add({std::move(name), std::move(shape), compute_, ValueKind::kCache});
}

Ref Builder::activation(const char* what, Shape shape, Dtype dtype) {
  std::string name = layer_ < 0 ? what : fmt::format("layer{}.{}", layer_, what);
  return graph_.add({std::move(name), std::move(shape), dtype, ValueKind::kActivation});
}

Node& Builder::add(Op op, std::vector<Ref> inputs, std::vector<Ref> outputs) {
  Node node{op, std::move(inputs), std::move(outputs), {}, layer_};
  graph_.pass.push_back(std::move(node));
  return graph_.pass.back();
}

Ref Builder::embedding(Ref ids, Ref table, int32_t padding_id) {
  const Shape &i = shape(ids), &t = shape(table);
  check(i.size() == 2 && t.size() == 2, "embedding",
        fmt::format("wanted ids (B, T) and a table (V, C), got {} and {}", to_string(i),
                    to_string(t)));
  Ref out = activation("embedded", {i[0], i[1], t[1]}, compute_);
  add(Op::kEmbedding, {ids, table}, {out}).attr.padding_id = padding_id;
  return out;
}

Ref Builder::linear(Ref x, const std::vector<Ref>& weights, const std::vector<Ref>& biases) {
  check(!weights.empty() && weights.size() <= 3, "linear", "wanted one to three weights");
  check(biases.empty() || biases.size() == weights.size(), "linear", "wanted a bias each, or none");
  int64_t columns = 0;
  for (size_t p = 0; p < weights.size(); ++p) {
    const Shape& w = shape(weights[p]);
    check(w.size() == 2 && w[1] == shape(x).back(), "linear",
          fmt::format("x {} wants weights of {} columns, got {}", to_string(shape(x)),
                      shape(x).back(), to_string(w)));
    if (!biases.empty()) {
      check(shape(biases[p]) == Shape{w[0]}, "linear",
            fmt::format("weight {} wants a bias of {} elements, got {}", to_string(w), w[0],
                        to_string(shape(biases[p]))));
    }
    columns += w[0];
  }
  Ref out = activation("linear", {shape(x)[0], shape(x)[1], columns}, compute_);
  std::vector<Ref> inputs = {x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  Attributes& attr = add(Op::kLinear, std::move(inputs), {out}).attr;
  attr.parts = static_cast<int>(weights.size());
  attr.has_bias = !biases.empty();
  return out;
}

Builder::Normed Builder::rmsnorm(Ref x, Ref residual, Ref weight, float eps) {
  const Shape s = shape(x);
  check(shape(weight) == Shape{s.back()}, "rmsnorm",
        fmt::format("x {} wants a weight of {} elements, got {}", to_string(s), s.back(),
                    to_string(shape(weight))));
  check(!residual || shape(residual) == s, "rmsnorm",
        fmt::format("x {} wants a residual of its shape, got {}", to_string(s),
                    residual ? to_string(shape(residual)) : "none"));
  Ref sum = residual ? activation("residual", s, compute_) : x;
  Ref y = activation("normed", s, compute_);
  Ref rstd = activation("rstd", {s[0], s[1]}, Dtype::kF32);
  std::vector<Ref> inputs = {x, weight};
  if (residual) inputs.push_back(residual);
  Attributes& attr = add(Op::kRmsNorm, std::move(inputs), {residual ? sum : Ref{}, y, rstd}).attr;
  attr.eps = eps;
  attr.has_residual = static_cast<bool>(residual);
  return {sum, y};
}

Ref Builder::rope(Ref qkv, Ref cosine, Ref sine, Ref positions, HeadShape h) {
  const int64_t columns = (h.heads + 2 * h.kv_heads) * h.head_dim;
  check(shape(qkv).back() == columns, "rope",
        fmt::format("wanted {} columns of q, k and v, got {}", columns, to_string(shape(qkv))));
  check(h.head_dim % 2 == 0, "rope", fmt::format("wanted an even head dim, got {}", h.head_dim));
  Ref out = activation("qkv", shape(qkv), compute_);
  std::vector<Ref> inputs = {qkv, cosine, sine};
  if (positions) inputs.push_back(positions);
  Attributes& attr = add(Op::kRope, std::move(inputs), {out}).attr;
  attr.heads = h.heads;
  attr.kv_heads = h.kv_heads;
  attr.head_dim = h.head_dim;
  return out;
}

Ref Builder::attention(Ref qkv, Ref lengths, Ref positions, HeadShape h, bool padding_attends,
                       const DropoutRule& dropout) {
  const Shape s = shape(qkv);
  check(s.size() == 3 && s[2] == (h.heads + 2 * h.kv_heads) * h.head_dim, "attention",
        fmt::format("wanted (B, T, {}), got {}", (h.heads + 2 * h.kv_heads) * h.head_dim,
                    to_string(s)));
  check(h.heads % h.kv_heads == 0, "attention",
        fmt::format("{} key/value heads do not divide {} heads", h.kv_heads, h.heads));
  check(shape(lengths) == Shape{s[0]}, "attention",
        fmt::format("qkv {} wants one length a row, got {}", to_string(s),
                    to_string(shape(lengths))));
  check(!positions || shape(positions) == Shape{s[0], s[1]}, "attention",
        fmt::format("qkv {} wants one position a token, got {}", to_string(s),
                    positions ? to_string(shape(positions)) : "none"));
  check(!positions || !padding_attends, "attention",
        "padding of packed rows belongs to no segment");
  const bool drops = dropout.rate != 0;
  check(dropout.rate >= 0 && dropout.rate < 1, "attention",
        fmt::format("wanted a dropout in [0, 1), got {}", dropout.rate));
  check(!drops || (dropout.rows && shape(dropout.rows) == Shape{s[0], 2}), "attention",
        "dropout wants an epoch and a number of every row");
  check(!drops || (dropout.site < kMostDropoutSites && h.heads <= kMostDropoutSites), "attention",
        "dropout is drawn for up to 65536 layers and heads");
  Ref out = activation("attended", {s[0], s[1], h.heads * h.head_dim}, compute_);
  Ref lse = activation("lse", {s[0], h.heads, s[1]}, Dtype::kF32);
  std::vector<Ref> inputs = {qkv, lengths};
  if (positions) inputs.push_back(positions);
  if (drops) inputs.push_back(dropout.rows);
  Attributes& attr = add(Op::kAttention, std::move(inputs), {out, lse}).attr;
  attr.heads = h.heads;
  attr.kv_heads = h.kv_heads;
  attr.head_dim = h.head_dim;
  attr.scale = 1.0f / std::sqrt(static_cast<float>(h.head_dim));
  attr.padding_attends = padding_attends;
  attr.dropout = dropout.rate;
  attr.dropout_seed = dropout.seed;
  attr.dropout_site = dropout.site;
  return out;
}

Ref Builder::cached_attention(Ref qkv, Ref starts, Ref lengths, Ref k_cache, Ref v_cache,
                              HeadShape h) {
  const Shape s = shape(qkv);
  const Shape& cached = shape(k_cache);
  check(
      cached.size() == 4 && cached[0] == s[0] && cached[2] == h.kv_heads && cached[3] == h.head_dim,
      "cached_attention",
      fmt::format("the cache {} does not fit qkv {}", to_string(cached), to_string(s)));
  Ref out = activation("attended", {s[0], s[1], h.heads * h.head_dim}, compute_);
  Attributes& attr =
      add(Op::kCachedAttention, {qkv, starts, lengths, k_cache, v_cache}, {out}).attr;
  attr.heads = h.heads;
  attr.kv_heads = h.kv_heads;
  attr.head_dim = h.head_dim;
  attr.scale = 1.0f / std::sqrt(static_cast<float>(h.head_dim));
  return out;
}

Ref Builder::swiglu(Ref gate_up) {
  const Shape s = shape(gate_up);
  check(s.size() == 3 && s[2] % 2 == 0, "swiglu",
        fmt::format("wanted gate and up of one width, got {}", to_string(s)));
  Ref out = activation("swiglu", {s[0], s[1], s[2] / 2}, compute_);
  add(Op::kSwiglu, {gate_up}, {out});
  return out;
}

Ref Builder::head_loss(Ref x, Ref weight, Ref targets, int64_t chunk_rows) {
  const Shape s = shape(x);
  check(shape(weight).size() == 2 && shape(weight)[1] == s.back(), "head_loss",
        fmt::format("x {} wants a head of {} columns, got {}", to_string(s), s.back(),
                    to_string(shape(weight))));
  check(shape(targets) == Shape{s[0], s[1]}, "head_loss",
        fmt::format("x {} wants one target a token, got {}", to_string(s),
                    to_string(shape(targets))));
  Ref losses = activation("losses", {s[0], s[1]}, Dtype::kF32);
  add(Op::kHeadLoss, {x, weight, targets}, {losses}).attr.chunk_rows = chunk_rows;
  return losses;
}

Ref Builder::head_logits(Ref x, Ref weight, Ref last) {
  const Shape s = shape(x);
  check(shape(weight).size() == 2 && shape(weight)[1] == s.back(), "head_logits",
        fmt::format("x {} wants a head of {} columns, got {}", to_string(s), s.back(),
                    to_string(shape(weight))));
  Ref logits = graph_.add({"logits", {s[0], shape(weight)[0]}, Dtype::kF32, ValueKind::kResult});
  add(Op::kHeadLogits, {x, weight, last}, {logits});
  return logits;
}

}  // namespace weft
