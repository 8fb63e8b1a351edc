// tests/launch/rendezvous_test.cpp: ranks find each other through a file, whatever lies there.
#include "launch/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "launch/rendezvous_file.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

LauncherPlace rank_of(int rank, int size, const std::string& id = "launch") {
  LauncherPlace place;
  place.launcher = "torchrun";
  place.size_variable = "WORLD_SIZE";
  place.rank = rank;
  place.size = place.local_size = size;
  place.local_rank = rank;
  place.id = id;
  return place;
}

struct Meeting {
  TemporaryFolder folder;
  RendezvousOptions options;
  explicit Meeting(int64_t deadline_ms = 20'000) {
    options.path = rendezvous_path(folder / "run");
    options.deadline_ms = deadline_ms;
  }
  // "" or the error of each.
  std::vector<std::string> meet(const std::vector<LauncherPlace>& places) {
    std::vector<std::string> errors(places.size());
    std::vector<std::unique_ptr<Rendezvous>> met(places.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < places.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          met[i] = std::make_unique<Rendezvous>(places[i], options);
        } catch (const Error& e) {
          errors[i] = e.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
};

const std::vector<std::string> kTwoWell = {"", ""};

TEST(RendezvousFile, IsNextToTheRunDirectory) {
  EXPECT_EQ(rendezvous_path("/a/runs/first"), "/a/runs/.first.rendezvous");
  EXPECT_EQ(rendezvous_path("/a/runs/first/"), "/a/runs/.first.rendezvous");
  EXPECT_EQ(rendezvous_path("first").filename(), ".first.rendezvous");
}

TEST(RendezvousFile, IsForItsOwnerAlone) {
  const TemporaryFolder folder;
  const fs::path path = folder / "new/.run.rendezvous";
  EXPECT_FALSE(read_rendezvous(path));
  write_rendezvous(path, {"launch", "127.0.0.1:1", "a secret"});
  struct stat is {};
  ASSERT_EQ(::stat(path.c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 0777, 0600u);
  ASSERT_TRUE(read_rendezvous(path));
  EXPECT_EQ(read_rendezvous(path)->secret, "a secret");
  ::chmod(path.c_str(), 0644);
  EXPECT_THROW(static_cast<void>(read_rendezvous(path)), UserError);
  ::chmod(path.c_str(), 0600);
  remove_rendezvous(path, {"launch", "127.0.0.1:1", "another"});
  EXPECT_TRUE(fs::exists(path));
  remove_rendezvous(path, {"launch", "127.0.0.1:1", "a secret"});
  EXPECT_FALSE(fs::exists(path));
}

TEST(Rendezvous, AllRanksMeetAndLeaveNoFile) {
  Meeting meeting;
  const auto errors = meeting.meet({rank_of(0, 4), rank_of(1, 4), rank_of(2, 4), rank_of(3, 4)});
  EXPECT_EQ(errors, std::vector<std::string>(4));
  EXPECT_TRUE(fs::is_empty(meeting.options.path.parent_path()));
}

TEST(Rendezvous, WhatEarlierLaunchesLeftDoesNoHarm) {
  const std::string secret(64, 'a');
  Meeting meeting;
  // Nobody listens there any more.
  write_rendezvous(meeting.options.path, {"launch", "127.0.0.1:9", secret});
  EXPECT_EQ(meeting.meet({rank_of(1, 2), rank_of(0, 2)}), kTwoWell);
  // Another program listens there.
  const Socket other = Socket::listen_on("127.0.0.1", "0");
  write_rendezvous(meeting.options.path, {"launch", other.local_endpoint(), secret});
  EXPECT_EQ(meeting.meet({rank_of(1, 2), rank_of(0, 2)}), kTwoWell);
  // Another launch's store, alive, with the number taken.
  const Secret known = Secret::from_text(secret, "the test");
  const StoreServer server("127.0.0.1", "0", &known);
  StoreClient holder(server.endpoint(), 5000, &known);
  holder.set("claim/1", "somebody");
  for (const char* id : {"launch", "another"}) {
    write_rendezvous(meeting.options.path, {id, server.endpoint(), secret});
    EXPECT_EQ(meeting.meet({rank_of(1, 2), rank_of(0, 2)}), kTwoWell) << id;
  }
  // Only the beginning.
  write_rendezvous(meeting.options.path, {"launch", "127.0.0.1:9", secret});
  fs::resize_file(meeting.options.path, 20);
  EXPECT_EQ(meeting.meet({rank_of(1, 2), rank_of(0, 2)}), kTwoWell);
}

TEST(Rendezvous, MissingRanksAreNamed) {
  Meeting meeting(1000);
  const auto errors = meeting.meet({rank_of(0, 4), rank_of(2, 4)});
  EXPECT_EQ(errors[0], "of 4 ranks (WORLD_SIZE), these did not come within 1 s: 1, 3");
  EXPECT_FALSE(fs::exists(meeting.options.path));
}

TEST(Rendezvous, WithoutRankZeroTheOthersSayWhatTheyWaitedFor) {
  Meeting meeting(300);
  const auto errors = meeting.meet({rank_of(1, 2)});
  EXPECT_EQ(errors[0], "rank 1 did not find rank 0 within 0 s: " + meeting.options.path.string() +
                           " did not appear");
}

TEST(Rendezvous, TwoProcessesWithOneNumberAreFound) {
  Meeting meeting(1500);
  const auto errors = meeting.meet({rank_of(0, 2), rank_of(1, 2), rank_of(1, 2)});
  EXPECT_EQ(errors[0], "");
  EXPECT_NE(errors[1].empty(), errors[2].empty());
}

TEST(Rendezvous, AnAbortReachesWhoeverWaits) {
  Meeting meeting;
  std::optional<std::string> heard;
  std::thread other([&] {
    const Rendezvous one(rank_of(1, 2), meeting.options);
    StoreClient client(one.endpoint(), 5000, one.secret().get());
    heard = client.wait_for(kAbortKey, 10'000);
  });
  {
    Rendezvous zero(rank_of(0, 2), meeting.options);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    zero.abort("rank 0: no space left");
  }
  other.join();
  EXPECT_EQ(heard, "rank 0: no space left");
}

}  // namespace
}  // namespace weft
