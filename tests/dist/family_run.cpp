// tests/dist/family_run.cpp: configurations and batches.
#include "tests/dist/family_run.h"

#include <algorithm>
#include <random>

#include "tensor/names.h"

namespace weft::testing {
namespace {

constexpr int64_t kFamilyVocab = 203;

int64_t num_segments(const Batch& b, int64_t row) {
  const int64_t T = b.padded.target;
  const auto positions = b.values(names::kPositions).subspan(static_cast<size_t>(row * T));
  return std::count(positions.begin(),
                    positions.begin() + b.values(names::kLengths)[static_cast<size_t>(row)], 0);
}

}  // namespace

Json family_config(const std::string& family, double dropout) {
  if (family == "bloom") {
    Json c = parse_json(R"({"architectures": ["BloomForCausalLM"], "hidden_size": 48,
        "n_layer": 2, "n_head": 12, "vocab_size": 203, "initializer_range": 0.1})",
                        "config");
    c.set("hidden_dropout", dropout);
    c.set("attention_dropout", dropout);
    return c;
  }
  Json c = parse_json(R"({"architectures": ["T5ForConditionalGeneration"], "d_model": 32,
      "d_kv": 12, "d_ff": 56, "num_heads": 4, "num_layers": 2, "vocab_size": 203, "pad_token_id": 0,
      "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20})",
                      "config");
  c.set("dropout_rate", dropout);
  if (family == "t5") return c;
  c.set("feed_forward_proj", "gated-gelu");
  c.set("tie_word_embeddings", false);
  c.set("num_decoder_layers", 1);
  return c;
}

Batch random_pairs(int64_t rows, weft::Lengths lengths, int64_t vocab, uint64_t seed, bool packed) {
  Batch b = random_batch(rows, lengths.target, vocab, seed, packed);
  std::mt19937_64 random(seed + 1000);
  const auto below = [&](int64_t n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  const int64_t S = lengths.source;
  b.padded.source = S;
  std::vector<int32_t> ids, used, positions;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t s = 0; s < S; ++s) ids.push_back(below(vocab));
    if (!packed) {
      used.push_back(r == 2 ? 0 : 1 + below(S));
      continue;
    }
    std::vector<int32_t> row;  // leaves a position for each of the segments that follow
    for (int64_t left = num_segments(b, r); left > 0; --left) {
      const int64_t most = S - static_cast<int64_t>(row.size()) - left + 1;
      const int32_t length = 1 + below(std::min<int64_t>(most, 9));
      for (int32_t p = 0; p < length; ++p) row.push_back(p);
    }
    used.push_back(static_cast<int32_t>(row.size()));
    row.resize(static_cast<size_t>(S), 0);
    positions.insert(positions.end(), row.begin(), row.end());
  }
  b.set(names::kSourceIds, S, ids);
  b.set(names::kSourceLengths, 1, used);
  if (packed) b.set(names::kSourcePositions, S, positions);
  return b;
}

MeshRun make_family_run(const FamilyRun& wanted) {
  const std::string layout = wanted.layout;
  const bool packs = layout == "pack", is_dynamic = layout == "dynamic";
  const bool reads_source = wanted.family != "bloom", learns_padding = layout == "padding";
  MeshRun run;
  run.model = family_config(wanted.family, wanted.dropout);
  run.config.train.global_batch = 8;
  run.config.train.precision = wanted.precision;
  run.config.train.clip_norm = 0.5;
  run.config.data.layout = learns_padding ? "pad" : layout;
  run.config.data.mask_padding = !learns_padding;
  const weft::Lengths longest = wanted.longest;
  run.config.data.seq_length = reads_source ? longest.source : longest.target;
  run.config.data.target_length = longest.target;
  run.config.parallel.mode = wanted.mode;
  const auto make = [&](int64_t rows, weft::Lengths lengths, uint64_t seed) {
    Batch b = reads_source ? random_pairs(rows, lengths, kFamilyVocab, seed, packs)
                           : random_batch(rows, lengths.target, kFamilyVocab, seed, packs);
    if (learns_padding) learn_padding(&b);
    return b;
  };
  // Of a dynamic batch each side is as long as its longest row.
  const auto lengths_of = [&](int64_t s) {
    if (!is_dynamic) return longest;
    return weft::Lengths{longest.target - s % 2 * 8, longest.source - s % 4 * 3};
  };
  for (int s = 0; s < wanted.steps; ++s)
    run.batches.push_back(make(8, lengths_of(s + 1), static_cast<uint64_t>(100 + s)));
  run.eval = make(7, lengths_of(2), 99);
  return run;
}

}  // namespace weft::testing
