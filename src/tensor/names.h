// tensor/names.h: the names by which models, batches and programs find inputs and results of a
// graph.
#pragma once

namespace weft::names {

// Inputs. B rows, T positions of the target (of a decoder-only model: of the row), S of the source.
inline constexpr char kIds[] = "ids";              // (B, T)
inline constexpr char kTargets[] = "targets";      // (B, T), -1: no label
inline constexpr char kLengths[] = "lengths";      // (B), without padding
inline constexpr char kSegments[] = "segments";    // packed: (B, T), from 1 in each row; 0: padding
inline constexpr char kPositions[] = "positions";  // (B, T), from 0 in each segment
inline constexpr char kSourceIds[] = "source_ids";              // (B, S)
inline constexpr char kSourceLengths[] = "source_lengths";      // (B)
inline constexpr char kSourceSegments[] = "source_segments";    // packed: (B, S)
inline constexpr char kSourcePositions[] = "source_positions";  // packed: (B, S)
inline constexpr char kRows[] = "rows";  // (B, 2), the row's epoch and its index in the epoch
// Of generation.
inline constexpr char kStarts[] = "starts";  // (B), positions that the cache holds of a row
inline constexpr char kLast[] = "last";      // (B), the position whose logits are needed
inline constexpr char kSourceCache[] = "source_cache.";  // begin of the names of such caches

// Results.
inline constexpr char kLossSum[] = "loss_sum";
inline constexpr char kGradNorm[] = "grad_norm";
inline constexpr char kGradScale[] = "grad_scale";
inline constexpr char kLossScale[] = "loss_scale";
inline constexpr char kLogits[] = "logits";

}  // namespace weft::names
