// comm/gloo/gloo.h: a group of ranks that reach each other over TCP, on one machine or several.
//
// Gloo moves the bytes; all sums are ours. Its ports carry no authentication: they listen on one
// address, by default loopback (launch.interface; docs/operate.md). The store through which the
// ranks find each other asks for the run's secret, where there is one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/comm.h"
#include "net/deadline.h"
#include "net/secret.h"

namespace weft {

struct GlooOptions {
  int rank = 0, num_ranks = 1;
  std::string store;               // "127.0.0.1:4711": a StoreServer, which outlives the group
  std::string host = "127.0.0.1";  // address of the interface this rank listens on
  std::shared_ptr<const Secret> secret = nullptr;  // the store's; null: it has none
  // Called once, from any thread, when the world is aborted: with the reason; has_waited: that this
  // rank has waited for another until its deadline.
  std::function<void(const std::string& reason, bool has_waited)> on_abort = nullptr;
  int64_t deadline_ms = kDeadlineMs;  // of every call, and of the connection
  // Bytes that are received before they are added; tests lower it to get many chunks.
  int64_t chunk_bytes = 4 << 20;
};

bool has_gloo();
// Collective: all ranks call it together. UserError where the build lacks Gloo.
std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options);

}  // namespace weft
