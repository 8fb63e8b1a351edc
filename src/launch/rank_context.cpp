// launch/rank_context.cpp: a rank's environment variables, parsed strictly.
#include "launch/rank_context.h"

#include <fcntl.h>

#include <cstdlib>

#include "base/error.h"
#include "launch/whole_number.h"

namespace weft {
namespace {

int read_number(const char* name, int least) {
  const char* text = std::getenv(name);
  require(text != nullptr, "{} is set, but {} is not; both are internal to weft", kRankVariable,
          name);
  const auto value = whole_number(text);
  require(value && *value >= least, "{}={} is not a number >= {}", name, text, least);
  return *value;
}

std::string read_text(const char* name) {
  const char* text = std::getenv(name);
  require(text != nullptr && *text != '\0', "{} is set, but {} is not; both are internal to weft",
          kFirstRankVariable, name);
  return text;
}

NodePlace read_place(int num_ranks) {
  NodePlace place;
  place.first_rank = read_number(kFirstRankVariable, 0);
  place.num_ranks = num_ranks;
  place.store = read_text(kStoreVariable);
  place.host = read_text(kHostVariable);
  place.secret_file = read_text(kSecretVariable);
  return place;
}

// So that the context may be made again; neither descriptor survives an exec.
int duplicate(int inherited) {
  ::fcntl(inherited, F_SETFD, FD_CLOEXEC);
  return ::fcntl(inherited, F_DUPFD_CLOEXEC, 0);
}

}  // namespace

std::optional<RankContext> RankContext::from_environment() {
  if (std::getenv(kRankVariable) == nullptr) return std::nullopt;
  RankContext context;
  context.rank = read_number(kRankVariable, 0);
  context.size = read_number(kNumRanksVariable, 1);
  context.threads = read_number(kThreadsVariable, 1);
  context.world = ShmWorld::attach(duplicate(read_number(kWorldFdVariable, 0)));
  if (std::getenv(kSnapshotsFdVariable) != nullptr)
    context.slots = SnapshotSlots::attach(duplicate(read_number(kSnapshotsFdVariable, 0)));
  if (std::getenv(kFirstRankVariable) != nullptr) context.node = read_place(context.size);
  const int here = context.world->num_ranks(), local = context.local_rank();
  require(
      local >= 0 && local < here && (context.node ? here <= context.size : here == context.size),
      "{}={} and {}={} do not fit a world of {} ranks", kRankVariable, context.rank,
      kNumRanksVariable, context.size, here);
  return context;
}

std::map<std::string, std::string> variables_of(const NodePlace& place) {
  return {{kFirstRankVariable, std::to_string(place.first_rank)},
          {kStoreVariable, place.store},
          {kHostVariable, place.host},
          {kSecretVariable, place.secret_file.string()}};
}

bool note_rank_failure(const std::string& message) noexcept {
  try {
    const auto context = RankContext::from_environment();
    if (context) context->world->note_failure(context->local_rank(), message);
    return context.has_value();
  } catch (const std::exception&) {
    return false;  // the process prints its own error, which says more than this one
  }
}

}  // namespace weft
