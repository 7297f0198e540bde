// SPDX-License-Identifier: Apache-2.0
// Sockets that a forked child closes at once. If the child kept the connection open, the broker would not see the end
// of its parent.
#ifndef GPUSHARE_CLIENT_INHERITED_H_
#define GPUSHARE_CLIENT_INHERITED_H_

namespace gpushare::client {

// At most 16 at a time. Further sockets stay open in the child; the broker then sees the parent's end by its pidfd. What the program
// has put at the number since is not closed.
void CloseInChildren(int socket);
// Must be called before `socket` is closed, since its number may then be reused.
void KeepInChildren(int socket);

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_INHERITED_H_
