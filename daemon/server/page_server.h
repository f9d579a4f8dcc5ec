// Serves one page over HTTP/1.1, made anew for each GET: a strict and small server for monitoring.
// It accepts one form of request, answers and closes. `heddle metrics --listen` uses it; the daemon
// never opens TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace heddle::server {

class PageServer {
 public:
  // `listen`: ADDRESS:PORT, or [ADDRESS]:PORT for IPv6; port 0: any free one. `page` is called on
  // the loop and may wait for the daemon; other requests wait meanwhile.
  static Result<std::unique_ptr<PageServer>> make(const std::string& listen, std::string path,
                                                  std::string content_type,
                                                  std::function<std::string()> page);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  std::string address() const;
  void run();   // until SIGINT, SIGTERM or stop()
  void stop();  // any thread

 private:
  struct State;
  explicit PageServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The status for a request's head (everything up to the empty line): 200; 400: malformed; 404:
// another path; 405: neither GET nor HEAD.
int judge_request(std::string_view head, std::string_view path);

}  // namespace heddle::server
