// The page server: which requests it takes, and that nobody holds it up.
#include "daemon/server/page_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace heddle::server {
namespace {

TEST(PageServer, TakesAGetOfItsPathAndNothingElse) {
  const auto judge = [](std::string_view head) { return judge_request(head, "/metrics"); };
  EXPECT_EQ(judge("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(judge("GET /metrics?x=1 HTTP/1.1\r\nhost: a\r\n\r\n"), 200);
  EXPECT_EQ(judge("GET /metrics HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(judge("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(judge("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(judge("GET /metrics2 HTTP/1.1\r\nHost: a\r\n\r\n"), 404);
  EXPECT_EQ(judge("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 404);
  for (const char* bad :
       {"", "\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", "GET  /metrics HTTP/1.1\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n\r\n", "GET /metrics HTTP/2\r\nHost: a\r\n\r\n",
        "GET http://a/metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost : a\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: a\x01\r\n\r\n"}) {
    EXPECT_EQ(judge(bad), 400) << bad;
  }
}

class PageServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = PageServer::make("127.0.0.1:0", "/metrics", "text/plain",
                                 [this] { return "page " + std::to_string(++made_) + "\n"; });
    ASSERT_TRUE(made) << made.error().message;
    server_ = std::move(*made);
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    server_->stop();
    thread_.join();
  }
  int connect_to() const {
    const std::string address = server_->address();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  static std::string read_all(int fd) {
    std::string text;
    char buffer[512];
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    close(fd);
    return text;
  }
  std::string ask(const std::string& request) const {
    const int fd = connect_to();
    EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    return read_all(fd);
  }

  int made_ = 0;
  std::unique_ptr<PageServer> server_;
  std::thread thread_;
};

TEST_F(PageServerTest, ServesItsPageAnewEachTime) {
  const std::string get = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_TRUE(ask(get).starts_with("HTTP/1.1 200 OK\r\n"));
  const std::string second = ask(get);
  EXPECT_TRUE(second.ends_with("\r\n\r\npage 2\n")) << second;
  EXPECT_NE(second.find("Content-Length: 7\r\n"), second.npos);
  EXPECT_TRUE(ask("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("\r\n\r\n"));
  EXPECT_TRUE(ask("DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 405 "));
  EXPECT_EQ(made_, 3) << "what is refused makes no page";
}

TEST_F(PageServerTest, ASilentConnectionHoldsNoOtherUp) {
  const int silent = connect_to();
  const int half = connect_to();
  ASSERT_GT(send(half, "GET /met", 8, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 200 "));
  const std::string rest = "rics HTTP/1.1\r\nHost: a\r\n\r\n";
  ASSERT_GT(send(half, rest.data(), rest.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(read_all(half).starts_with("HTTP/1.1 200 "));
  close(silent);
}

TEST_F(PageServerTest, AUserWithAllPlacesMakesRoom) {
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(connect_to());
    ASSERT_GT(send(silent.back(), "GET /met", 8, MSG_NOSIGNAL), 0);
  }
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 200 "));
  char byte = 0;
  EXPECT_LE(recv(silent.front(), &byte, 1, 0), 0) << "the oldest was ended";
  for (const int fd : silent) close(fd);
}

TEST_F(PageServerTest, EndsWhoeverTalksTooMuch) {
  EXPECT_TRUE(ask(std::string(9000, 'x')).starts_with("HTTP/1.1 400 "));
}

TEST(PageServerAddress, IsAnAddressAndAPort) {
  for (const char* bad : {"", "9410", "localhost:9410", "127.0.0.1:", "127.0.0.1:99999",
                          "127.0.0.1:9x", "[::1:9410", "1.2.3:1"}) {
    const auto made = PageServer::make(bad, "/", "text/plain", [] { return ""; });
    ASSERT_FALSE(made) << bad;
    EXPECT_NE(made.error().message.find("127.0.0.1:9410"), std::string::npos);
  }
}

TEST_F(PageServerTest, AScraperIsServedBesideTwoWhoConnectWithoutPause) {
  std::atomic<bool> stop = false;
  const auto crowd = [&] {
    std::deque<int> open;
    while (!stop) {
      open.push_back(connect_to());
      if (open.size() < 200) continue;
      close(open.front());
      open.pop_front();
    }
    for (const int fd : open) close(fd);
  };
  std::thread first(crowd), second(crowd);
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").find("page "), std::string::npos)
        << i;
  }
  stop = true;
  first.join();
  second.join();
}

}  // namespace
}  // namespace heddle::server
