// launch/rendezvous.h: ranks that a launcher started find each other: rank 0 serves a store, and
// every rank claims its number there (docs/design/0020-engines.md).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "launch/launcher_place.h"
#include "net/secret.h"
#include "net/store.h"

namespace weft {

struct RendezvousOptions {
  std::filesystem::path path;      // of the file (launch/rendezvous_file.h)
  std::string host = "127.0.0.1";  // rank 0 listens there
  int64_t deadline_ms = 300'000;   // for all ranks to come
};

class Rendezvous {
 public:
  // Returns when all ranks have come. PeerError naming the ranks that have not.
  Rendezvous(const LauncherPlace& place, const RendezvousOptions& options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  std::shared_ptr<const Secret> secret() const { return secret_; }
  // Aborts the waits of all ranks through the store, and returns when that has passed it on.
  void abort(const std::string& reason) noexcept;

 private:
  void serve();
  void find_store();
  [[noreturn]] void refuse_absence(const std::string& why) const;
  bool claim();  // false: another process has this rank's number
  void wait_for_all();

  const LauncherPlace place_;
  const RendezvousOptions options_;
  const int64_t end_ms_;
  std::unique_ptr<StoreServer> server_;  // rank 0's
  std::string endpoint_;
  std::shared_ptr<const Secret> secret_;
  std::unique_ptr<StoreClient> client_;
};

}  // namespace weft
