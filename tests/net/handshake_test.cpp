// tests/net/handshake_test.cpp: who knows the secret gets in, and nobody else, whatever he has
// recorded, changed or guessed.
#include "net/handshake.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "tests/hex.h"
#include "tests/net/helpers.h"

namespace weft::testing {
namespace {

using State = ServerHandshake::State;

const Identity kStore = {"store", "1.2.3"};

Secret known() { return Secret::from_text("0123456789abcdef", "test"); }
Secret other() { return Secret::from_text("0123456789abcdeF", "test"); }

Nonce nonce_of(uint8_t byte) {
  Nonce nonce;
  nonce.fill(byte);
  return nonce;
}

std::string flipped(std::string bytes, size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  return bytes;
}

TEST(Handshake, BothSidesDeriveTheSameKeys) {
  ServerHandshake server(known(), kStore);
  ClientHandshake client(known(), kStore, "the store");
  ASSERT_EQ(server.receive(client.answer(server.challenge())), State::kAccepted);
  const SessionKeys here = server.keys(), there = client.finish(server.verdict());
  EXPECT_EQ(here.send, there.receive);
  EXPECT_EQ(here.receive, there.send);
  EXPECT_NE(here.send, here.receive);

  ServerHandshake again(known(), kStore);
  ClientHandshake next(known(), kStore, "the store");
  ASSERT_EQ(again.receive(next.answer(again.challenge())), State::kAccepted);
  EXPECT_NE(again.keys().send, here.send) << "every session has keys of its own";
}

// Computed with Python's hmac module: what is proven, and the bytes on the wire.
TEST(Handshake, BytesOfAnotherImplementation) {
  ServerHandshake server(known(), kStore, nonce_of(1));
  ClientHandshake client(known(), kStore, "the store", nonce_of(2));
  const std::string version = "1.2.3" + std::string(27, '\0');
  const std::string answer = client.answer("weft-hs1" + std::string(32, '\1'));
  EXPECT_EQ(answer.substr(0, 72), "weft-hs1" + std::string(32, '\2') + version);
  EXPECT_EQ(hex(answer.substr(72)),
            "df5b75321ff928d6cbcfc3784bf10b026ccc9a1e419847cee1165ce6dede1b05");
  ASSERT_EQ(server.receive(answer), State::kAccepted);
  EXPECT_EQ(server.verdict().substr(0, 33), "\1" + version);
  EXPECT_EQ(hex(server.verdict().substr(33)),
            "d1e20d084802e7f345f8b2d283d1a197a7555d8a509eb1e3fe89bb2e7d0df57f");
  EXPECT_EQ(hex(bytes_of(server.keys().receive)),
            "e4b0be2800d3de2812a5150d40fcb4f9cf2f986823e3bf2738cb001a74024f54");
  EXPECT_EQ(hex(bytes_of(server.keys().send)),
            "f77f3cf5c4366635b6b5474c707f3ba054c7b9de033ac938f234a5412556f825");
}

TEST(Handshake, AnotherSecretIsRefusedWithoutAWord) {
  ServerHandshake server(known(), kStore);
  ClientHandshake client(other(), kStore, "the store");
  EXPECT_EQ(server.receive(client.answer(server.challenge())), State::kRefused);
  EXPECT_EQ(server.verdict(), "");
  EXPECT_EQ(server.refusal(), "does not know this run's secret");
  EXPECT_THROW(server.keys(), BugError);
}

TEST(Handshake, AProofForOneServiceIsNoneForAnother) {
  ServerHandshake server(known(), {"supervisor", "1.2.3"});
  ClientHandshake client(known(), kStore, "the store");
  EXPECT_EQ(server.receive(client.answer(server.challenge())), State::kRefused);
  EXPECT_EQ(server.verdict(), "");
}

TEST(Handshake, EveryChangedBitIsFound) {
  ServerHandshake server(known(), kStore, nonce_of(1));
  ClientHandshake client(known(), kStore, "the store", nonce_of(2));
  const std::string challenge = server.challenge();
  const std::string answer = client.answer(challenge);
  for (size_t bit = 0; bit < 8 * kAnswerBytes; ++bit) {
    ServerHandshake fresh(known(), kStore, nonce_of(1));
    EXPECT_EQ(fresh.receive(flipped(answer, bit)), State::kRefused) << bit;
    EXPECT_EQ(fresh.verdict(), "");
  }
  ASSERT_EQ(server.receive(answer), State::kAccepted);
  for (size_t bit = 0; bit < 8 * kVerdictBytes; ++bit) {
    const auto finish = [&] { client.finish(flipped(server.verdict(), bit)); };
    EXPECT_NE(complaint<UserError>(finish).find("does not know this run's secret"),
              std::string::npos)
        << bit;
  }
  for (size_t bit = 0; bit < 8 * kChallengeBytes; ++bit) {
    ServerHandshake fresh(known(), kStore, nonce_of(1));
    ClientHandshake deceived(known(), kStore, "the store");
    const auto shake = [&] {
      if (fresh.receive(deceived.answer(flipped(challenge, bit))) == State::kAccepted) return;
      throw UserError("refused");
    };
    EXPECT_NE(complaint<UserError>(shake), "") << bit;
  }
}

TEST(Handshake, AReplayedAnswerIsRefused) {
  ServerHandshake server(known(), kStore), later(known(), kStore);
  ClientHandshake client(known(), kStore, "the store");
  const std::string answer = client.answer(server.challenge());
  ASSERT_EQ(server.receive(answer), State::kAccepted);
  EXPECT_EQ(later.receive(answer), State::kRefused);
  // The server's side replayed to a client that has another nonce.
  ClientHandshake next(known(), kStore, "the store");
  next.answer(server.challenge());
  EXPECT_NE(complaint<UserError>([&] { next.finish(server.verdict()); }), "");
}

// A server that knows nothing gives back what it has received.
TEST(Handshake, AReflectedProofIsRefused) {
  ServerHandshake server(known(), kStore);
  ClientHandshake client(known(), kStore, "the store");
  const std::string answer = client.answer(server.challenge());
  const std::string verdict = "\1" + answer.substr(40, 32) + answer.substr(72);
  EXPECT_NE(complaint<UserError>([&] { client.finish(verdict); }), "");
}

TEST(Handshake, APartOfAnAnswerIsNone) {
  ClientHandshake client(known(), kStore, "the store");
  for (size_t size = 0; size < kAnswerBytes; ++size) {
    ServerHandshake server(known(), kStore);
    const std::string answer = client.answer(server.challenge());
    EXPECT_EQ(server.receive(answer.substr(0, size)), State::kWaiting);
    EXPECT_EQ(server.verdict(), "");
    EXPECT_EQ(server.receive(answer.substr(size)), State::kAccepted) << "in two pieces";
  }
  ServerHandshake server(known(), kStore);
  EXPECT_EQ(server.receive(client.answer(server.challenge()) + "x"), State::kRefused);
}

TEST(Handshake, AnotherProtocolIsRefusedAtItsFirstByte) {
  ServerHandshake server(known(), kStore);
  EXPECT_EQ(server.receive("G"), State::kRefused);
  EXPECT_EQ(server.receive("ET"), State::kRefused);
  ClientHandshake client(known(), kStore, "the store at x:1");
  EXPECT_EQ(complaint<UserError>([&] { client.answer("HTTP/1.1 400 Bad Request"); }),
            "the store at x:1 does not ask for this run's secret");
}

TEST(Handshake, AnotherVersionIsReportedToThoseWhoKnowTheSecret) {
  ServerHandshake server(known(), {"supervisor", "2.0.0"});
  ClientHandshake client(known(), {"supervisor", "1.2.3"}, "the supervisor at x:1");
  EXPECT_EQ(server.receive(client.answer(server.challenge())), State::kRefused);
  EXPECT_EQ(server.refusal(), "is another build of weft: 1.2.3 there, 2.0.0 here");
  EXPECT_EQ(complaint<UserError>([&] { client.finish(server.verdict()); }),
            "the supervisor at x:1 is weft 2.0.0 and refuses other builds; this is weft 1.2.3");

  ServerHandshake silent(known(), {"supervisor", "2.0.0"});
  ClientHandshake stranger(other(), {"supervisor", "1.2.3"}, "the supervisor");
  EXPECT_EQ(silent.receive(stranger.answer(silent.challenge())), State::kRefused);
  EXPECT_EQ(silent.refusal(), "does not know this run's secret");
  EXPECT_EQ(silent.verdict(), "");
}

TEST(Handshake, AVersionIsSafeToPrint) {
  ServerHandshake server(known(), kStore);
  ClientHandshake client(known(), {"store", "1\x1b[2J\n"}, "the store");
  EXPECT_EQ(server.receive(client.answer(server.challenge())), State::kRefused);
  EXPECT_EQ(server.refusal(), "is another build of weft: 1\\x1b[2J\\x0a there, 1.2.3 here");
}

}  // namespace
}  // namespace weft::testing
