// SPDX-License-Identifier: Apache-2.0
// Descriptors that a forked child closes at once: while it held the connection, the broker would not see its parent's
// end.
#ifndef GPUSHARE_CLIENT_INHERITED_H_
#define GPUSHARE_CLIENT_INHERITED_H_

namespace gpushare::client {

// Up to 16 at a time; further ones stay open in the child, whose parent's end the broker sees by its process then.
void CloseInChildren(int fd);
// Before `fd` is closed, or its number is another's.
void KeepInChildren(int fd);

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_INHERITED_H_
