// One page over HTTP/1.1, made anew at each GET: a strict and small server for machines that poll.
// It takes a request of one known form, answers and closes. `heddle metrics --listen` is its user;
// the daemon never opens TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace heddle::server {

class PageServer {
 public:
  // `listen` is ADDRESS:PORT, [ADDRESS]:PORT for IPv6; port 0: any that is free. `page` is called
  // on the loop and may take as long as the daemon does; others wait meanwhile.
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

// The status that a request's head (all up to the empty line) deserves: 200, or why it is not
// served: 400 malformed, 404 another path, 405 not GET or HEAD.
int judge_request(std::string_view head, std::string_view path);

}  // namespace heddle::server
